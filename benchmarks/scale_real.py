"""Real runs with 1 to 4 trainers for scale_model.py: samples per second, and what each role's CPU did for them."""

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

BATCH = 512
_TICKS = os.sysconf("SC_CLK_TCK")
_FETCH_PART = 0.45  # of a pserver's work for a batch; the push steps the rows besides finding them
_REQUEST_S = 15e-6  # of a pserver's CPU for a frame, whatever it holds
_CHUNK_MIB = 4.0
_SETTLE_S = 1.0  # after the first samples, until every process is at its pace


@dataclass(frozen=True)
class Costs:
    """Of one batch, on one core of the machine measured."""

    batch: int
    trainer_s: float
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
            f"trainer {self.trainer_s * 1e3:.2f} ms of CPU, pserver {self.pserver_s * 1e3:.2f} ms, "
            f"{self.bytes_per_batch / 1e3:,.0f} kB on the wire; coordinator {self.coordinator_s * 1e3:.1f} ms a chunk"
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
    times = 2 + trainers  # through the log, as one epoch: the ends of epochs are none of the model's
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
        "cluster": {"strategy": "async", "trainers": trainers, "pservers": pservers, "chunk_mib": _CHUNK_MIB},
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


class _Watch:
    """CPU seconds and samples between two moments of a run: when it has settled, and the last time seen."""

    def __init__(self, run: Path, folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._seen: list[tuple[float, dict[str, Any], dict[str, float]]] = []

    def look(self) -> None:
        from elasticctr.control.peer import Peer
        from elasticctr.errors import ElasticCTRError
        from elasticctr.ps.addresses import find_coordinator

        try:
            token = (self._run / "cluster" / "token").read_text().strip()
            with Peer(find_coordinator(str(self._run)), token, timeout_s=2.0) as peer:
                status = peer.get("/v1/status")
            roles = json.loads((self._run / "cluster" / "roles.json").read_text())["roles"]
        except (ElasticCTRError, OSError, ValueError):
            return
        cpu = {role["name"]: _cpu_s(role["pid"]) for role in roles if role["pid"]}
        is_moving = not self._seen or status["samples"] > self._seen[-1][1]["samples"]
        if status.get("samples") and is_moving and len(cpu) == len(roles) and None not in cpu.values():
            self._seen.append((time.monotonic(), status, {name: value or 0.0 for name, value in cpu.items()}))

    def point(self, trainers: int, pservers: int, samples_per_mib: float) -> Point:
        if len(self._seen) < 4 or self._seen[-1][0] - self._seen[0][0] < 2 * _SETTLE_S:
            raise SystemExit(f"{self._run}: was over before it could be measured; more rows are needed")
        start = next((s for s in self._seen if s[0] > self._seen[0][0] + _SETTLE_S), self._seen[0])
        end = self._seen[-1]
        samples = end[1]["samples"] - start[1]["samples"]
        seconds = end[0] - start[0]
        batches = samples / BATCH

        def spent(kind: str) -> float:
            return sum(end[2][n] - start[2].get(n, 0.0) for n in end[2] if n.startswith(kind))

        frames = 2 * batches * pservers
        stats = [role.get("stats") or {} for role in end[1]["roles"] if role["role"] == "pserver"]
        rows = sum(one.get("rows", 0) for one in stats)
        row_bytes = sum(one.get("row_bytes", 0) for one in stats) / max(rows, 1)
        wire = [
            (role.get("stats") or {}).get("sent_bytes", 0) + (role.get("stats") or {}).get("received_bytes", 0)
            for role in end[1]["roles"]
            if role["role"] == "trainer"
        ]
        costs = Costs(
            batch=BATCH,
            trainer_s=spent("trainer") / batches,
            pserver_s=max(spent("pserver") - frames * _REQUEST_S, 0.0) / batches,
            request_s=_REQUEST_S,
            fetch_part=_FETCH_PART,
            bytes_per_batch=sum(wire) / (end[1]["samples"] / BATCH),
            coordinator_s=spent("coordinator") / (samples / (samples_per_mib * _CHUNK_MIB)),
            samples_per_mib=samples_per_mib,
            row_bytes=row_bytes or 120.0,
            bytes_per_row_in_memory=(row_bytes or 120.0) + 8.0,
        )
        return Point(trainers, pservers, samples / seconds, costs)


def _cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
