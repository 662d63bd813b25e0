"""A training job of real processes on this machine, and what must hold after any fault.

    with Training(tmp_path, log, trainers=2) as training:
        training.start()
        training.wait_samples(0.3)
        training.kill("trainer-0")
        training.finish()
        training.check()

`check` verifies four things: the ledger is complete, every sample was learned from exactly once (by the ledger, and by
the shows that the rows of the final checkpoint counted), the AUC is that of an undisturbed run within noise, and no
process is left behind. All waits are bounded.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import yaml

from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.errors import Unavailable
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.train.job import Job, load_job
from tests.cluster.harness import wait_until

START_S = 300.0  # until the first sample: many processes that import torch on a busy machine
FINISH_S = 300.0
VALID_ROWS = 4_000
_NOISE = 0.02  # of an AUC on 4,000 samples after so little training, in an order that is never the same


@dataclass(frozen=True, slots=True)
class Log:
    """A made-up click log with its schema; `valid` is not part of what is trained on."""

    path: Path
    rows: int

    @property
    def train(self) -> str:
        return str(self.path / "train" / "part-*")

    @property
    def valid(self) -> str:
        return str(self.path / "valid" / "part-*")


def make_log(path: Path, rows: int, *, files: int = 3, seed: int = 3) -> Log:
    spec = criteo_spec(Format.SLOT, slots=6, dense=3, cardinalities=(40, 300))
    changes = {"multi": (False,) * 4 + (True,) * 2, "seed": seed}
    # The hidden model is the seed's; rows of another seed would follow another one. So valid comes from the same rows.
    whole = path / "whole"
    write_log(spec.model_copy(update=changes), whole, rows + VALID_ROWS)
    (part,) = whole.glob("part-*")
    lines = part.read_bytes().splitlines(keepends=True)
    for name, chosen in (("train", lines[:rows]), ("valid", lines[rows:])):
        (path / name).mkdir()
        count = files if name == "train" else 1
        for number in range(count):
            piece = chosen[len(chosen) * number // count : len(chosen) * (number + 1) // count]
            (path / name / f"part-{number:05d}.txt").write_bytes(b"".join(piece))
    (whole / "schema.yaml").rename(path / "schema.yaml")
    return Log(path, rows)


class Training:
    """One job. Settings of its `cluster` section are given by name, others as `section__key`."""

    def __init__(self, root: Path, log: Log, *, epochs: int = 2, seed: int = 0, **settings: Any) -> None:
        self.root, self.log, self.epochs = root, log, epochs
        self.run_dir = root / "run"
        self.random = random.Random(seed)
        self.job_file = root / "job.yaml"
        self._write_job(settings)
        self.job: Job = load_job(self.job_file)
        self.output = root / "output.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.seen: set[int] = set()  # every process of the job that was ever seen
        self.summary: dict[str, Any] = {}
        self.refused = 0  # samples that a story means to be refused

    def _write_job(self, settings: dict[str, Any]) -> None:
        job: dict[str, Any] = {
            "run_dir": str(self.run_dir),
            "schema": str(self.log.path / "schema.yaml"),
            "data": {"train": {"path": self.log.train}, "valid": {"path": self.log.valid}},
            "model": {"name": "wide_deep", "dim": 4, "hidden": [16, 8]},
            "train": {"batch_size": 64, "epochs": self.epochs, "threads": 1, "log_every": 50},
            "cluster": {
                "strategy": "async",
                "trainers": 2,
                "pservers": 2,
                "chunk_mib": 0.1,
                "lease_s": 3.0,
                "pserver_wait_s": 3.0,
                "checkpoint_s": 1.0,
            },
        }
        for name, value in settings.items():
            *sections, key = name.split("__")
            place = job if sections else job["cluster"]
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
        self.job_file.write_text(yaml.safe_dump(job))

    @property
    def total(self) -> int:
        return self.log.rows * self.epochs

    # Running it

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        command = [*prefix, sys.executable, "-m", "elasticctr", "train", str(self.job_file), "--on", "local", "--json"]
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    def roles(self) -> dict[str, dict[str, Any]]:
        """What the engine knows of each process."""
        try:
            about = json.loads((self.run_dir / "cluster" / "roles.json").read_text())
        except (OSError, ValueError):
            return {}
        found = {role["name"]: role for role in about["roles"]}
        self.seen |= {role["pid"] for role in found.values() if role["pid"]}
        return found

    def pid(self, role: str) -> int:
        """Of a role that runs now."""

        def running() -> int:
            self._check_running()
            found = self.roles().get(role, {})
            pid = found.get("pid") or 0
            return pid if pid and found.get("phase") == "running" and is_alive(pid) else 0

        return wait_until(running, f"{role} running", START_S)

    def kill(self, *roles: str) -> list[int]:
        """kill -9, all at once. Returns their process ids."""
        pids = [self.pid(role) for role in roles]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids

    def pause(self, role: str) -> int:
        pid = self.pid(role)
        os.kill(pid, signal.SIGSTOP)
        return pid

    @staticmethod
    def go_on(pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    def restarts(self, role: str) -> int:
        return int(self.roles().get(role, {}).get("restarts", 0))

    def status(self) -> dict[str, Any]:
        try:
            token = (self.run_dir / "cluster" / "token").read_text().strip()
        except OSError as e:
            raise Unavailable(f"not started yet: {e}") from None
        assert self.job.cluster is not None
        with Peer(find_coordinator(str(self.run_dir)), token, timeout_s=3.0, tls=self.job.cluster.tls) as peer:
            return peer.get("/v1/status")

    def wait_samples(self, part: float, timeout_s: float = START_S) -> int:
        """Until this part of all samples is learned from. Returns how many are."""

        def reached() -> int:
            self._check_running()
            samples = int(self.status().get("samples") or 0)
            return samples if samples >= part * self.total else 0

        return wait_until(reached, f"{part:.0%} of {self.total} samples", timeout_s, every_s=0.02)

    def random_moment(self, low: float = 0.1, high: float = 0.6) -> float:
        """Waits until a part of the run, drawn from the story's seed, is over."""
        part = self.random.uniform(low, high)
        self.wait_samples(part)
        return part

    def finish(self, timeout_s: float = FINISH_S, status: int = 0) -> dict[str, Any]:
        """Waits for the end. The summary that `train --json` prints."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"not over within {timeout_s:g} s\n{self.tell()}"
            self.roles()
            time.sleep(0.05)
        text = self.output.read_text(errors="replace")
        assert self.process.returncode == status, f"ended with {self.process.returncode}\n{self.tell()}"
        assert "Traceback" not in text, text[-4000:]
        if status == 0:
            self.summary = json.loads(text[text.index('{"run_dir"') :])
        return self.summary

    def read_summary(self) -> dict[str, Any]:
        """The same from the files of the run, for roles that were started by hand."""
        from elasticctr.cluster.summary import read_summary

        found = read_summary(self.run_dir)
        self.summary = {"finished": found.is_finished, "samples": found.samples, "metrics": found.metrics}
        return self.summary

    # What must hold afterwards

    def check(self) -> None:
        self.check_ledger()
        self.check_every_sample_once()
        self.check_auc()
        self.check_nothing_left()

    def check_ledger(self) -> None:
        """Every chunk of every epoch is done, and their samples are those of the data."""
        assert self.summary["finished"], self.summary
        assert self.summary["samples"] == self.total, (self.summary["samples"], self.total)
        for epoch in range(self.epochs):
            plan = json.loads((self.run_dir / "ledger" / f"plan-{epoch}.json").read_text())
            assert len(plan["chunks"]) > 1
            done = {event["chunk"] for event in self.journal("done")}
            missing = [chunk["id"] for chunk in plan["chunks"] if chunk["id"] not in {str(one) for one in done}]
            assert not missing, f"chunks of epoch {epoch} that nobody reported done: {missing}"

    def journal(self, event: str) -> list[dict[str, Any]]:
        lines = (self.run_dir / "ledger" / "journal.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    @property
    def rollbacks(self) -> int:
        """How often all pservers went back to a checkpoint."""
        return len(self.journal("rollback"))

    def is_gone(self, name: str) -> bool:
        """Whether the coordinator has given this role up."""
        return any(event["name"] == name for event in self.events("gone"))

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = (self.run_dir / "events.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def check_every_sample_once(self) -> None:
        """Rows count shows in the same step as they learn, so shows tell which samples were learned from how often."""
        from elasticctr.train.checkpoint import open_checkpoint
        from elasticctr.train.learner import Learner

        learner = Learner(self.job)
        learner.load(open_checkpoint(self.run_dir))
        (table,) = learner.sparse.tables
        shows = {int(f): float(s) for rows in table.rows() for f, s in zip(rows.feasigns, rows.shows, strict=True)}
        expected = occurrences(self.log)
        if self.refused == 0:
            wrong = {f: (shows.get(f), n * self.epochs) for f, n in expected.items() if shows.get(f) != n * self.epochs}
            assert not wrong and len(shows) == len(expected), f"{len(wrong)} feasigns: {list(wrong.items())[:5]}"
        else:
            values = sum(expected.values()) / self.log.rows  # per sample
            lost = (sum(expected.values()) * self.epochs - sum(shows.values())) / values
            assert abs(lost - self.refused) <= 0.2 * self.refused, (lost, self.refused)

    def check_auc(self, noise: float = _NOISE) -> None:
        expected = undisturbed_auc(self.log, self.epochs)
        assert abs(self.summary["metrics"]["valid"]["auc"] - expected) < noise, (self.summary["metrics"], expected)

    def check_nothing_left(self) -> None:
        left = [pid for pid in sorted(self.seen) if is_alive(pid)] + processes_of(self.run_dir)
        assert not left, f"left behind: {[(pid, command_of(pid)) for pid in left]}"

    # Ends of it

    def tell(self) -> str:
        """What everybody printed last."""
        parts = [self.output.read_text(errors="replace")[-2000:] if self.output.exists() else ""]
        for log in sorted((self.run_dir / "logs").glob("*")) if (self.run_dir / "logs").is_dir() else []:
            parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
        return "\n".join(parts)

    def _check_running(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the job ended with {self.process.returncode}\n{self.tell()}")

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.roles()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        for pid in {*self.seen, *processes_of(self.run_dir)}:
            if str(self.run_dir) in command_of(pid):
                os.kill(pid, signal.SIGKILL)
        if error is not None:
            print(self.tell())


@lru_cache(maxsize=8)
def undisturbed_auc(log: Log, epochs: int) -> float:
    """Of one process on the same data."""
    from elasticctr.config import parse_settings
    from elasticctr.run import train

    settings = {
        "run_dir": str(log.path / f"undisturbed-{epochs}"),
        "schema": yaml.safe_load((log.path / "schema.yaml").read_text()),
        "data": {"train": {"path": log.train}, "valid": {"path": log.valid}},
        "model": {"name": "wide_deep", "dim": 4, "hidden": [16, 8]},
        "train": {"batch_size": 64, "epochs": epochs, "threads": 1},
    }
    return float(train(parse_settings(Job, settings, "undisturbed"), quiet=True).metrics["valid"]["auc"])


@lru_cache(maxsize=8)
def occurrences(log: Log) -> dict[int, float]:
    """How often each feasign occurs in one epoch."""
    from elasticctr.config import load_yaml, parse_settings
    from elasticctr.data.schema import Schema

    schema = parse_settings(Schema, load_yaml(log.path / "schema.yaml"), "schema")
    counts: dict[int, float] = {}
    for batch in Dataset(log.train, schema):
        for feasign, count in zip(*np.unique(batch.values, return_counts=True), strict=True):
            counts[int(feasign)] = counts.get(int(feasign), 0.0) + float(count)
    return counts


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes_of(run_dir: Path) -> list[int]:
    """Living processes whose command names the run."""
    own = os.getpid()
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if pid != own and str(run_dir) in command_of(pid) and is_alive(pid)]
