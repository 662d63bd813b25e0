"""`elasticctr data` as a process: exit status and output streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def run_process(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from elasticctr.cli.app import main; main()", *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_a_real_process_ends_with_the_status_of_its_error(tmp_path: Path) -> None:
    result = run_process("data", "inspect", tmp_path / "absent")
    assert (result.returncode, result.stdout) == (12, "")
    assert result.stderr == f"elasticctr: NotFound: {tmp_path / 'absent'}: no such file or directory\n"
    result = run_process("data", "synth", tmp_path / "x", "--rows", 10, "--json")
    assert result.returncode == 0 and json.loads(result.stdout)["rows"] == 10
