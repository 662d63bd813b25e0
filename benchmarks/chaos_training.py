"""The training jobs of chaos.py: one after another, each restarted until it ends, then counted.

usage: python benchmarks/chaos_training.py JOB.yaml MODEL REPOSITORY      (counts the samples of a finished run)

Rows count shows in the same step as they learn, so the shows in the last checkpoint tell which samples were learned
from and how often. Every feasign must have been seen exactly as often as it occurs in the log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stack import Process

STEP_S = 0.03  # longer than a step takes, so there is always a step to interrupt
ROWS = 12_000
BATCH = 64
MODEL = f'''"""Wide & Deep whose training step takes {STEP_S} s longer."""

import time

from elasticctr.models.wide_deep import WideDeep


class Paced(WideDeep):
    name = "paced"

    def forward(self, inputs):
        if self.training:
            time.sleep({STEP_S})
        return super().forward(inputs)
'''


@dataclass
class Tally:
    """The results of all jobs of a flow."""

    jobs: int = 0
    lost: int = 0
    messages: list[str] = field(default_factory=list)


class Flow:
    """Jobs, one after another, that publish `model` into `repository`: in one process, or with pservers."""

    def __init__(self, root: Path, log: Path, repository: Path, model: str, *, is_cluster: bool) -> None:
        self.model, self.is_cluster = model, is_cluster
        self._root, self._log, self._repository = root / f"train-{model}", log, repository
        self._root.mkdir(parents=True)
        self._network = self._root / "paced.py"
        self._network.write_text(MODEL)
        self.tally = Tally()
        self.is_ending = False  # the current job is the last
        self.is_over = False
        self._number = 0
        self._checks: list[subprocess.Popen[str]] = []
        self._next()

    @property
    def run_dir(self) -> Path:
        return self._root / f"run-{self._number}"

    @property
    def job_file(self) -> Path:
        return self._root / f"job-{self._number}.yaml"

    def _next(self) -> None:
        self._number += 1
        job: dict[str, Any] = {
            "run_dir": str(self.run_dir),
            "schema": str(self._log / "schema.yaml"),
            "data": {"train": {"path": str(self._log / "part-*")}},
            "model": {"name": str(self._network), "dim": 4, "hidden": [16, 8]},
            "train": {"batch_size": BATCH, "threads": 1, "checkpoint_every": 25, "log_every": 50, "seed": self._number},
            "publish": {"to": str(self._repository), "model": self.model, "every_steps": 50, "max_chain": 6},
        }
        if self.is_cluster:
            job["cluster"] = {
                "trainers": 2,
                "pservers": 2,
                "standby": self._number % 2 == 0,
                "chunk_mib": 0.1,
                "lease_s": 3.0,
                "pserver_wait_s": 3.0,
                "checkpoint_s": 3.0,
                "max_restarts": 10_000,
            }
        self.job_file.write_text(yaml.safe_dump(job))
        self.process = Process(f"train-{self.model}", [], self._root / "output.txt")

    def start(self) -> None:
        """Starts or resumes the job."""
        is_used = (self.run_dir / "metrics.json").exists() or any((self.run_dir / "checkpoints").glob("step-*"))
        where = ["--on", "local"] if self.is_cluster else []
        self.process.arguments = ["train", str(self.job_file), *where, *(["--resume"] if is_used else [])]
        self.process.start()

    def look(self) -> None:
        """Called often: starts the next job when this one has ended."""
        if self.is_over or self.process.exit_status != 0 or not self._is_finished():
            return
        command = ["nice", sys.executable, __file__, str(self.job_file), self.model, str(self._repository)]
        self._checks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        self.tally.jobs += 1
        if self.is_ending:
            self.is_over = True
            return
        self._next()
        self.start()

    def _is_finished(self) -> bool:
        path = self.run_dir / "events.jsonl"
        return path.exists() and '"event": "end"' in path.read_text().replace('":"', '": "')

    def progress(self) -> tuple[int, int]:
        """A value that changes as long as there is progress."""
        files = [self.run_dir / "ledger" / "journal.jsonl", self.run_dir / "events.jsonl"]
        return self._number, sum(path.stat().st_size for path in files if path.exists())

    def roles(self) -> dict[str, int]:
        """Process ids of the job, except the one that was started."""
        try:
            about = json.loads((self.run_dir / "cluster" / "roles.json").read_text())
        except (OSError, ValueError):
            return {}
        return {one["name"]: one["pid"] for one in about["roles"] if one["pid"] and one["phase"] == "running"}

    def finish(self) -> Tally:
        """The results of the checks of all finished jobs."""
        for check in self._checks:
            out, _ = check.communicate(timeout=300)
            try:
                found = json.loads(out.splitlines()[-1])
            except (ValueError, IndexError):
                found = {"lost": 1, "message": out[-500:]}
            self.tally.lost += found["lost"]
            if found["message"]:
                self.tally.messages.append(f"{self.model}: {found['message']}")
        self._checks = []
        return self.tally

    def kill(self) -> None:
        pids = self.roles().values()
        self.process.kill()
        time.sleep(0.2)
        for pid in pids:
            if str(self._root) in command_of(pid):
                os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def count(job_file: str, model: str, repository: str) -> dict[str, Any]:
    """How many samples of a finished run are missing or counted twice, and versions that were not published."""
    import numpy as np

    from elasticctr.cluster.summary import read_summary
    from elasticctr.data.dataset import Dataset
    from elasticctr.train.checkpoint import open_checkpoint
    from elasticctr.train.job import load_job
    from elasticctr.train.learner import Learner
    from elasticctr.versions.repository import Repository

    job = load_job(Path(job_file))
    expected: dict[int, float] = {}
    rows = 0
    for batch in Dataset(str(job.data.train.path), job.samples):
        rows += len(batch)
        for feasign, times in zip(*np.unique(batch.values, return_counts=True), strict=True):
            expected[int(feasign)] = expected.get(int(feasign), 0.0) + float(times)
    checkpoint = open_checkpoint(job.run_dir)
    learner = Learner(job)
    learner.load(checkpoint)
    shows: dict[int, float] = {}
    for table in learner.sparse.tables:
        for part in table.rows():
            for feasign, seen in zip(part.feasigns, part.shows, strict=True):
                shows[int(feasign)] = max(shows.get(int(feasign), 0.0), float(seen))
    wrong = {f: (shows.get(f), n) for f, n in expected.items() if shows.get(f) != n}
    said = read_summary(job.run_dir).samples if job.cluster is not None else rows
    steps = [one.run.get("step") for one in Repository(repository).versions(model) if _is_of(one.run, job.run_dir)]
    message = ""
    if wrong:
        message += f"{len(wrong)} feasigns not counted once per sample (seen, expected): {list(wrong.values())[:3]}; "
    if said != rows:
        message += f"the run says it learned from {said} samples of {rows}; "
    if checkpoint.step not in steps:
        message += f"its last state, of step {checkpoint.step}, was not published, only steps {steps}; "
    lost = len(wrong) + abs(said - rows) + (checkpoint.step not in steps)
    return {"lost": lost, "message": f"{job.run_dir}: {message}" if message else ""}


def _is_of(run: dict[str, Any], run_dir: str) -> bool:
    return Path(str(run.get("directory", ""))).name == Path(run_dir).name


if __name__ == "__main__":
    print(json.dumps(count(*sys.argv[1:4])))
