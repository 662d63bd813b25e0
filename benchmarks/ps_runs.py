"""Whole runs of `elasticctr train`: one process, and pservers with trainers on this machine, over the same log.

Measures the CPU time of all processes of a run, coordinator and launcher included, and its samples, from the run's
events or the pushes that a pserver has applied. The measurement is taken in the middle of one epoch that reads the log
several times, when most rows exist, so that starting (imports, connecting, first rows), checkpoints and stopping do not
count. Reading text counts on both sides. All compute with one thread.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ps_count import PushCounter

DENSE, SLOTS, DIM, LAYERS = 13, 26, 9, (512, 256, 128, 32)
POLL_S = 0.02
ATTEMPTS = 3  # a busy machine can delay the watcher for a whole run
COUNT_S = 0.2  # between two readings of the pservers' progress
WARM_UP, WIND_DOWN = 0.4, 0.9  # the measurement lies between these shares of a run
TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # CPU time of processes is counted in these


@dataclass(frozen=True)
class Speed:
    """The speed of one way to train."""

    cpu_us: float  # per sample, all processes together
    samples_per_s: float


@dataclass(frozen=True)
class Moment:
    time: float
    cpu_s: float
    samples: int


def cpu_s(pid: int) -> float:
    """CPU time of a running process so far, including ended threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def tree_cpu_s(root: int) -> float:
    """CPU time of a process and its living descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    members, grows = {root}, True
    while grows:
        found = {pid for pid, parent in parents.items() if parent in members} | members
        grows, members = len(found) > len(members), found
    total = 0.0
    for pid in members:
        try:
            total += cpu_s(pid)
        except OSError:
            continue
    return total


def write_job(folder: Path, text: Path, batch_size: int, times: int) -> Path:
    """Writes the job of PaddleRec's Wide & Deep, as in benchmarks/train.py, for this many passes over the log."""
    log = folder / f"log-{times}"
    log.mkdir(exist_ok=True)
    for time_through in range(times):
        for part in sorted(text.iterdir()):
            link = log / f"{time_through:02d}-{part.name}"
            if not link.exists():
                link.symlink_to(part.resolve())
    slots: list[dict[str, object]] = [{"name": "dense_feature", "kind": "dense", "dim": DENSE}]
    slots += [{"name": str(slot + 1), "kind": "sparse"} for slot in range(SLOTS)]
    adam = {"name": "adam", "learning_rate": 1e-3}
    job = {
        "schema": {"slots": slots},
        "data": {"train": {"path": str(log)}},
        "model": {"name": "wide_deep", "dim": DIM, "hidden": list(LAYERS)},
        "dense": {"optimizer": "adam", "learning_rate": 1e-3},
        "sparse": {"optimizer": adam, "initializer": {"name": "uniform", "low": -0.05, "high": 0.05}},
        "train": {"batch_size": batch_size, "threads": 1, "seed": 1, "log_every": max(20_000 // batch_size, 1)},
    }
    path = folder / f"job-{batch_size}.yaml"
    path.write_text(json.dumps(job))  # JSON is YAML
    return path


def measure_one_process(job: Path) -> Speed:
    """The speed of a run without pservers, alone on the machine."""
    return _measure(job, "run-one", [])


def measure_full_machine(job: Path) -> Speed:
    """The speed of runs without pservers, one per core at the same time: the cost of a sample when busy cores share
    caches, as they do in a run with pservers. Samples/s are those of one run.
    """
    count = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as pool:
        speeds = list(pool.map(lambda n: _measure(job, f"run-one-{n}", []), range(count)))
    return Speed(*(statistics.mean(of) for of in zip(*((s.cpu_us, s.samples_per_s) for s in speeds), strict=True)))


def measure(job: Path, pservers: int, trainers: int) -> Speed:
    """The speed of one run with pservers."""
    options = ["--on", "local", "--pservers", str(pservers), "--trainers", str(trainers), "--strategy", "async"]
    return _measure(job, f"run-{pservers}-{trainers}", options)


def _measure(job: Path, name: str, options: list[str]) -> Speed:
    directory = job.parent / name
    command = [sys.executable, "-m", "elasticctr", "train", str(job), "--run-dir", str(directory), "--json", *options]
    events = directory / "events.jsonl"
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        counter = PushCounter(directory) if options else None
        moments = _watch(command, events, counter, json.loads(job.read_text())["train"]["batch_size"])
        shutil.rmtree(directory, ignore_errors=True)
        speed = speed_between(moments)
        if speed is not None:
            return speed
    raise SystemExit(f"{' '.join(command)}: too short to be measured; run it on a machine that is less busy")


def speed_between(moments: list[Moment]) -> Speed | None:
    """The speed in the middle of the run, or in all of it if there are too few readings in the middle. None if samples,
    time or CPU time did not change between two readings."""
    total = moments[-1].samples if moments else 0
    inside = [m for m in moments if WARM_UP * total <= m.samples <= WIND_DOWN * total]
    for looks in (inside, moments):
        if len(looks) < 3:
            continue
        first, last = looks[0], looks[-1]
        samples, seconds, used_s = last.samples - first.samples, last.time - first.time, last.cpu_s - first.cpu_s
        if samples > 0 and seconds > 0 and used_s > 0:
            return Speed(used_s / samples * 1e6, samples / seconds)
    return None


def _watch(command: list[str], events: Path, counter: PushCounter | None, batch_size: int) -> list[Moment]:
    """Readings of the run's progress: from its pservers, or else at each line of its log."""
    moments: list[Moment] = []
    seen, next_s = 0, 0.0
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            text = events.read_bytes() if events.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            lines = map(json.loads, whole[seen:].splitlines() if counter is None else ())
            trained = [event for event in lines if event["event"] == "train"]
            if trained:  # the CPU time is current, so it belongs to the last line only
                moments.append(Moment(trained[-1]["time"], tree_cpu_s(process.pid), trained[-1]["samples"]))
            seen = len(whole)
            if counter is not None and whole and time.monotonic() >= next_s:
                next_s = time.monotonic() + COUNT_S
                pushes = counter.count()
                if pushes:
                    moments.append(Moment(time.monotonic(), tree_cpu_s(process.pid), pushes * batch_size))
            time.sleep(POLL_S)
        if process.returncode != 0:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}:\n{log.read()[-3000:]}")
    return moments
