"""The benchmarks that attack and kill run to their end and find no errors; speed is not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1300)]


def run(script: str, *arguments: str) -> dict[str, Any]:
    """The last line it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--quick", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(done.stdout[-6000:])
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def test_attacks_reach_honest_clients_as_figures() -> None:
    only = [word for name in ("nothing", "half-closed", "random bytes", "Redis garbage") for word in ("--only", name)]
    found = run("abuse.py", *only)
    assert found["honest_requests"] > 100
    assert (found["ended"], found["over_budget"]) == (0, 0)
    assert set(found["attacks"]) == {"nothing", "half-closed connections", "random bytes", "Redis garbage"}
