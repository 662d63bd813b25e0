"""The examples run as they stand, on less data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str | Path, cwd: Path) -> str:
    # `elasticctr` is beside the Python that runs the tests.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ROWS": "12000", "ELASTICCTR__TRAIN__EPOCHS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_run_then_from_python_then_publish_and_serve_then_many_processes(tmp_path: Path) -> None:
    run(EXAMPLES / "01-first-run" / "run.sh", cwd=tmp_path)
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert (tmp_path / "scores.parquet").exists()
    assert "AUC 0." in run(sys.executable, EXAMPLES / "02-from-python" / "train.py", "log", cwd=tmp_path)
    published = run(EXAMPLES / "04-publish-and-look-up" / "run.sh", cwd=tmp_path)
    assert "ctr\t2\tdelta\t1" in published
    served = run(EXAMPLES / "05-serve" / "run.sh", cwd=tmp_path)
    assert "2000 scores, largest difference" in served
    assert "live       1" in served, "activated by hand"
    many = run(EXAMPLES / "06-many-processes" / "run.sh", cwd=tmp_path)
    assert "samples, each counted once" in many
    assert "was killed by SIGKILL" in many and "restart 1" in many


def test_own_model(tmp_path: Path) -> None:
    lines = "".join(f"click:{i % 2} ad:{i % 7} history:{i % 5} history:{i % 11}\n" for i in range(2000))
    (tmp_path / "log.txt").write_text(lines)
    (tmp_path / "job.yaml").write_text(
        f"""
schema:
  slots:
    - {{name: ad}}
    - {{name: history, pooling: none, max_values: 4}}
data: {{train: log.txt}}
model: {{name: "{EXAMPLES}/03-own-model/model.py:HistoryAttention", dim: 4, hidden: [8], temperature: 0.5}}
train: {{batch_size: 100}}
"""
    )
    run("elasticctr", "train", "job.yaml", cwd=tmp_path)
