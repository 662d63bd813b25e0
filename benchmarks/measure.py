"""Shared by all benchmarks: fair rounds, peers in their own environments, and the origin of a result."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".bench"  # data and peers' environments; ignored by git, kept between runs


def make_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds: takes a minute or two")
    return parser


def parse_arguments(description: str) -> argparse.Namespace:
    return make_parser(description).parse_args()


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleave(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median seconds of each contestant, which returns its own time.

    All run once per round, after one unmeasured round, so that other load on the machine affects all of them equally.
    """
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            times[name].append(run())
    return {name: statistics.median(t) for name, t in times.items()}


def make_environment(name: str, packages: Sequence[str]) -> Path:
    """The Python of a virtual environment with `packages`, created on first use."""
    folder = WORK / name
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(packages):
        print(f"making {folder.relative_to(ROOT)} with {', '.join(packages)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.write_text("\n".join(packages))
    return python


class Peer:
    """A script in another environment that answers each line on its input with one line of JSON."""

    def __init__(
        self, python: Path, script: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [str(python), str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "", **(environment or {})},
        )

    def ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the peer {self._process.args!r} ended with status {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def stamp() -> dict[str, str]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return {
        "machine": f"{len(os.sched_getaffinity(0))} x {model}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain") else ""),
        "command": shlex.join(["python", *sys.argv]),
    }


def print_result(result: Mapping[str, float], **details: Any) -> None:
    """Prints the last line of a benchmark."""
    print(json.dumps({**{k: float(f"{v:.4g}") for k, v in result.items()}, **details, **stamp()}))
