"""The sections of benchmarks/report.md, for the charts and tables of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPORT = Path(__file__).with_name("report.md")


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    command: str
    date: str
    commit: str
    machine: str
    figures: dict[str, float]
    text: str  # what the benchmark printed

    @property
    def source(self) -> str:
        """Machine, date, commit and command, as they stand under every table and chart."""
        commit = f", commit {self.commit}" if self.commit else ""
        return f"*`{self.command}`, {self.date}{commit}, {self.machine}.*"

    def find(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of every line that matches; an error if none does."""
        found = [match.groups() for match in re.finditer(pattern, self.text, flags=re.MULTILINE)]
        if not found:
            raise ValueError(f"{self.name}: nothing in the report matches {pattern}")
        return found


def read_report() -> dict[str, Result]:
    _, *sections = re.split(r"^## (.+)$", REPORT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: _read(name, text) for name, text in zip(sections[::2], sections[1::2], strict=True)}


def _read(name: str, text: str) -> Result:
    text = text.replace("(R)", "")
    head, fence, rest = text.partition("```\n")
    text = " ".join(head.split()) + "\n" + fence + rest
    about = re.search(r"`(python benchmarks/[^`]*)`, (\d{4}-\d\d-\d\d)(?:, commit (\w+\+?))?(?:, ([^.;\n(]*))?", text)
    command, date, commit, machine = about.groups(default="") if about else ("", "", "", "")
    printed = re.search(r"^```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    figures = re.findall(r"^\| `(\w+)` \| ([-\d.e]+) \|$", text, flags=re.MULTILINE)
    return Result(
        name,
        command,
        date,
        commit,
        machine.replace(" Processor", "").replace("2 x ", "two cores of a virtual machine, ").strip(),
        {key: float(value) for key, value in figures},
        printed[1] if printed else "",
    )


def number(text: str) -> float:
    return float(text.replace(",", ""))
