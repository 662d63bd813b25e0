"""Writes benchmarks/report.md from what the benchmarks printed.

usage: python benchmarks/report.py OUTPUT.txt …     (make bench does so)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEAD = """# Benchmark report

Made from the benchmarks' own output by `benchmarks/report.py`. [Methods](../docs/benchmarks/method.md) says how each
figure is taken and what it means. Ratios within one run mean something; absolute speeds are those of one virtual
machine on one day.
"""


def section(path: Path) -> str:
    *text, last = path.read_text(encoding="utf-8").rstrip().splitlines()
    result = json.loads(last)
    about = f"`{result['command']}`, {result['date'][:10]}, commit {result['commit']}, {result['machine']}"
    figures = "\n".join(f"| `{k}` | {v} |" for k, v in result.items() if isinstance(v, float | None))
    shown = "\n".join(line.rstrip() for line in text)
    return f"\n## {path.stem}\n\n{about}\n\n```\n{shown}\n```\n\n| figure | value |\n| --- | --- |\n{figures}\n"


def main() -> None:
    sections = [section(Path(argument)) for argument in sys.argv[1:]]
    Path(__file__).with_name("report.md").write_text(HEAD + "".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
