"""Schemathesis reads /openapi.json and tries to make the server contradict it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.serve.live import live_server

# A schema cannot say whether a slot or variant exists, so valid requests may still be refused. Unknown headers are
# a server does not know it does not mind. A millisecond may be too short for an answer.
CONFIG = """
[checks.positive_data_acceptance]
enabled = false

[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", 503, 504]

[generation]
allow-extra-parameters = false
"""
# Requests reach the model there is.
REACHING = (
    CONFIG
    + """
[parameters]
model = "ctr"
version = 7
"""
)


def run(folder: Path, settings: str, *options: str) -> None:
    config = folder / "schemathesis.toml"
    config.write_text(settings)
    with live_server(folder) as live:
        command = ["--config-file", str(config), "run", live.url + "/openapi.json", "--no-color", *options]
        start = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
        done = subprocess.run([*start, *command], capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
        live.still_answers()


def test_a_few_examples_find_nothing(tmp_path: Path) -> None:
    quick = ["--max-examples", "1", "--phases", "fuzzing", "--seed", "1", "--generation-database", "none"]
    run(tmp_path, REACHING, *quick, "--include-path-regex", "^/v1/models/")


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(900)
def test_every_phase_finds_nothing(tmp_path: Path) -> None:
    run(tmp_path, REACHING, "--max-examples", "40", "--seed", "1", "--generation-database", "none")


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.timeout(900)
def test_models_that_are_not_there_find_nothing(tmp_path: Path) -> None:
    run(tmp_path, CONFIG, "--max-examples", "20", "--seed", "1", "--generation-database", "none")
