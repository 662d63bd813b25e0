"""Every benchmark of the Makefile starts, describes itself and knows --quick."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# One interpreter for all of them: most import torch.
HELP = """
import contextlib, io, json, runpy, sys
found = {}
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(script, run_name="__main__")
            status = "ran"
        except SystemExit as e:
            status = e.code
    found[script] = [status, said.getvalue()]
print(json.dumps(found))
"""


def benchmarks() -> list[str]:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8")
    return [name for names in re.findall(r"^(?:BENCHMARKS|QUALITY) := (.*)$", lines, re.M) for name in names.split()]


def test_every_benchmark_describes_itself_and_its_quick_run() -> None:
    scripts = [f"{name}.py" for name in (*benchmarks(), "chaos")]
    assert len(scripts) > 15
    command = [sys.executable, "-c", HELP, *scripts]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for script, (status, said) in json.loads(done.stdout).items():
        assert status == 0 and "--quick" in said, (script, status, said)
