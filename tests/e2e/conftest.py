"""A small made-up click log, and the command line run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from elasticctr.cli.app import app

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def elasticctr() -> Run:
    def run(
        *arguments: str | Path, cwd: Path | None = None, timeout_s: float = 240
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "elasticctr", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    return run


@pytest.fixture(scope="session")
def invoke() -> Run:
    """The same in this process: many quick commands without starting Python for each."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess([], result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory, elasticctr: Run) -> Path:
    """20,000 Criteo-shaped samples in four slot files, with their schema."""
    path = tmp_path_factory.mktemp("data") / "log"
    done = elasticctr("data", "synth", path, "--rows", "20000", "--files", "4", "--max-cardinality", "200", "--json")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def job(tmp_path: Path, log: Path) -> Path:
    """A job that trains in seconds."""
    settings: dict[str, Any] = {
        "run_dir": str(tmp_path / "run"),
        "schema": str(log / "schema.yaml"),
        "data": {
            "train": {"path": str(log / "part-*"), "fraction": [0.0, 0.8], "shuffle_rows": 4000},
            "valid": {"path": str(log / "part-*"), "fraction": [0.8, 1.0]},
        },
        "model": {"name": "wide_deep", "dim": 4, "hidden": [16, 8]},
        "train": {"batch_size": 256, "epochs": 2, "log_every": 10, "threads": 1},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr + done.stdout
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def assert_clean_failure(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """One line with the reason on stderr, the status of its error class, no traceback."""
    assert done.returncode == status, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    for word in words:
        assert word in done.stderr, (word, done.stderr)
