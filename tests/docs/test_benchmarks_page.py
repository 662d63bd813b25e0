"""docs/benchmarks/index.md and its charts hold figures of benchmarks/report.md, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks" / "index.md"


def test_the_page_is_made_from_the_report() -> None:
    code = "import sys, page; sys.stdout.reconfigure(encoding='utf-8'); print(page.make_page(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, encoding="utf-8", check=True
    )
    assert PAGE.read_text(encoding="utf-8") == made.stdout, "run `make charts`"


def test_every_chart_is_there() -> None:
    for line in [*PAGE.read_text().splitlines(), *(ROOT / "README.md").read_text().splitlines()]:
        if line.startswith("!["):
            path = line.partition("](")[2].removesuffix(")")
            folder = PAGE.parent if path.startswith("..") else ROOT
            assert (folder / path).resolve().exists(), path
