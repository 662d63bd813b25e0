"""Real runs with 1 to 4 trainers for scale_model.py: samples per second, and the CPU time of each role.

Samples are the pushes that a pserver has applied. A trainer's CPU time is split into that of the computing thread, for
which every step has to wait, and that of the others (reading, sockets, reports), which run beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from ps_count import PushCounter

BATCH = 512
_TICKS = os.sysconf("SC_CLK_TCK")
_FETCH_PART = 0.45  # of a pserver's work for a batch; the push steps the rows besides finding them
_REQUEST_S = 15e-6  # a pserver's CPU time for a frame of any size
CHUNK_MIB = 4.0
_SETTLE_S = 1.0  # from the first samples until every process has its full speed


@dataclass(frozen=True)
class Costs:
    """Costs of one batch, on one core of the measured machine."""

    batch: int
    trainer_s: float  # of all its threads
    main_s: float  # of the computing thread
    wait_s: float  # sleeping time of that thread, for rows, answers or the interpreter lock
    queued_s: float  # its time waiting for a core
    pserver_s: float  # of all pservers together, frames aside
    request_s: float
    fetch_part: float
    bytes_per_batch: float  # both ways, all pservers together
    coordinator_s: float  # per chunk
    samples_per_mib: float  # of the log
    row_bytes: float
    bytes_per_row_in_memory: float

    def describe(self) -> str:
        return (
            f"trainer {self.trainer_s * 1e3:.2f} ms of CPU, {self.main_s * 1e3:.2f} of them computing, "
            f"which waits {self.wait_s * 1e3:.2f} ms and {self.queued_s * 1e3:.2f} ms for a core besides, "
            f"pserver {self.pserver_s * 1e3:.2f} ms, {self.bytes_per_batch / 1e3:,.0f} kB on the wire; "
            f"coordinator {self.coordinator_s * 1e3:.1f} ms a chunk"
        )


@dataclass(frozen=True)
class Point:
    trainers: int
    pservers: int
    samples_per_s: float
    costs: Costs


def measure(folder: Path, *, is_quick: bool) -> list[Point]:
    """Points with 1, 2 and 4 trainers (quick: 1 and 2); costs are those of the first."""
    rows = 60_000 if is_quick else 300_000
    spec = criteo_spec(Format.SLOT, slots=26, dense=13, cardinalities=(20_000,))
    report = write_log(spec, folder / "log", rows, files=4)
    ways = [(1, 1), (2, 1)] if is_quick else [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2)]
    return [_run(folder, trainers, pservers, rows, report.bytes) for trainers, pservers in ways]


def _run(folder: Path, trainers: int, pservers: int, rows: int, size: int) -> Point:
    run = folder / f"run-{trainers}-{pservers}"
    times = 2 + trainers  # passes over the log, as one epoch: the model does not cover the ends of epochs
    log = folder / f"log-{times}"
    log.mkdir(exist_ok=True)
    for part in sorted((folder / "log").glob("part-*")):
        for time_through in range(times):
            link = log / f"part-{time_through}-{part.name}"
            if not link.exists():
                link.symlink_to(part)
    settings: dict[str, Any] = {
        "run_dir": str(run),
        "schema": str(folder / "log" / "schema.yaml"),
        "data": {"train": {"path": str(log / "part-*")}},
        "model": {"name": "wide_deep", "dim": 8, "hidden": [64, 32]},
        "train": {"batch_size": BATCH, "threads": 1},
        "cluster": {"strategy": "async", "trainers": trainers, "pservers": pservers, "chunk_mib": CHUNK_MIB},
    }
    job = folder / f"job-{trainers}-{pservers}.yaml"
    job.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "elasticctr", "train", str(job), "--on", "local", "--json"]
    with (folder / "output.txt").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        watch = _Watch(run, folder)
        try:
            while process.poll() is None:
                watch.look()
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{(folder / 'output.txt').read_text()[-2000:]}")
    return watch.point(trainers, pservers, rows * 2**20 / size)


@dataclass(frozen=True)
class _Look:
    time_s: float
    pushes: int
    status: dict[str, Any]
    cpu_s: dict[str, float]  # by role
    main_s: float  # of the computing threads of all trainers
    queued_s: float  # time in which they were ready but had no core


class _Watch:
    """CPU seconds and samples between two moments of a run: when it has settled, and the last time seen."""

    def __init__(self, run: Path, folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._counter = PushCounter(run)
        self._seen: list[_Look] = []

    def look(self) -> None:
        from elasticctr.errors import ElasticCTRError
        from elasticctr.net.client import Peer
        from elasticctr.ps.addresses import find_coordinator

        try:
            token = (self._run / "cluster" / "token").read_text().strip()
            with Peer(find_coordinator(str(self._run)), token, timeout_s=2.0) as peer:
                status = peer.get("/v1/status")
            roles = json.loads((self._run / "cluster" / "roles.json").read_text())["roles"]
        except (ElasticCTRError, OSError, ValueError):
            return
        pushes = self._counter.count()
        cpu = {role["name"]: _cpu_s(role["pid"]) for role in roles if role["pid"]}
        computing = [_main_s(role["pid"]) for role in roles if role["pid"] and role["name"].startswith("trainer")]
        main_s, queued_s = (sum(times) for times in zip(*computing, strict=True)) if computing else (0.0, 0.0)
        is_moving = bool(pushes) and (not self._seen or pushes > self._seen[-1].pushes)
        if pushes and is_moving and len(cpu) == len(roles) and None not in cpu.values() and status.get("samples"):
            known = {name: value or 0.0 for name, value in cpu.items()}
            self._seen.append(_Look(time.monotonic(), pushes, status, known, main_s, queued_s))

    def point(self, trainers: int, pservers: int, samples_per_mib: float) -> Point:
        if len(self._seen) < 4 or self._seen[-1].time_s - self._seen[0].time_s < 2 * _SETTLE_S:
            raise SystemExit(f"{self._run}: ended before it could be measured; use more rows")
        start = next((s for s in self._seen if s.time_s > self._seen[0].time_s + _SETTLE_S), self._seen[0])
        # At the end of the log trainers run out of work one by one.
        end = next((s for s in self._seen if s.pushes >= 0.9 * self._seen[-1].pushes), self._seen[-1])
        if end.time_s <= start.time_s or end.pushes <= start.pushes:
            raise SystemExit(f"{self._run}: was too fast at its end to be measured; use more rows")
        batches = end.pushes - start.pushes
        samples = batches * BATCH
        seconds = end.time_s - start.time_s

        def spent(kind: str) -> float:
            return sum(end.cpu_s[n] - start.cpu_s.get(n, 0.0) for n in end.cpu_s if n.startswith(kind))

        main_s, queued_s = end.main_s - start.main_s, end.queued_s - start.queued_s
        frames = 2 * batches * pservers
        stats = [role.get("stats") or {} for role in end.status["roles"] if role["role"] == "pserver"]
        rows = sum(one.get("rows", 0) for one in stats)
        row_bytes = sum(one.get("row_bytes", 0) for one in stats) / max(rows, 1)
        wire = [
            (role.get("stats") or {}).get("sent_bytes", 0) + (role.get("stats") or {}).get("received_bytes", 0)
            for role in end.status["roles"]
            if role["role"] == "trainer"
        ]
        costs = Costs(
            batch=BATCH,
            trainer_s=spent("trainer") / batches,
            main_s=main_s / batches,
            wait_s=max(trainers * seconds - main_s - queued_s, 0.0) / batches,
            queued_s=queued_s / batches,
            pserver_s=max(spent("pserver") - frames * _REQUEST_S, 0.0) / batches,
            request_s=_REQUEST_S,
            fetch_part=_FETCH_PART,
            bytes_per_batch=sum(wire) / end.pushes,
            coordinator_s=spent("coordinator") / (samples / (samples_per_mib * CHUNK_MIB)),
            samples_per_mib=samples_per_mib,
            row_bytes=row_bytes or 120.0,
            bytes_per_row_in_memory=(row_bytes or 120.0) + 8.0,
        )
        return Point(trainers, pservers, samples / seconds, costs)


def _main_s(pid: int) -> tuple[float, float]:
    """Of a process's first thread: seconds it ran, seconds it waited for a core."""
    try:
        ran, queued, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0, 0.0
    return int(ran) / 1e9, int(queued) / 1e9


def _cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
