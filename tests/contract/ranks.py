"""Ranks of a collective run as real processes, without restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.harness import free_port

from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.train.job import Job, load_job


def make_log(out: Path, rows: int, files: int = 2, **changes: Any) -> int:
    """A synthetic log; returns its bytes."""
    spec = criteo_spec(Format.SLOT, slots=6, dense=3, cardinalities=(40, 300))
    spec = spec.model_copy(update={"multi": (False,) * 4 + (True,) * 2, **changes})
    return write_log(spec, out, rows, files=files).bytes


def write_job(path: Path, log: Path, run_dir: Path, **changes: Any) -> Path:
    """A job of a small model; `changes` replace settings by their dotted names with __ for dots."""
    settings: dict[str, Any] = {
        "run_dir": str(run_dir),
        "schema": str(log / "schema.yaml"),
        "data": {"train": {"path": str(log / "part-*")}},
        "model": {"name": "wide_deep", "dim": 4, "hidden": [16, 8]},
        "train": {"batch_size": 16, "threads": 1, "log_every": 20},
        "cluster": {"strategy": "collective", "chunk_mib": 0.05},
    }
    for name, value in changes.items():
        *sections, key = name.split("__")
        place = settings
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    path.write_text(yaml.safe_dump(settings))
    return path


def start_group(job: Path, ranks: int, *arguments: str) -> subprocess.Popen[str]:
    """torchrun with this many ranks on this machine, which restarts them when one dies."""
    options = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "3", "--monitor-interval", "0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "tests.contract.ranks", str(job)]
    return subprocess.Popen(
        [*command, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rank_pids(group: subprocess.Popen[str]) -> list[int]:
    """Processes of the ranks that torchrun has started, by rank."""
    children = Path(f"/proc/{group.pid}/task/{group.pid}/children").read_text().split()
    found: dict[int, int] = {}
    for pid in map(int, children):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = next((entry[5:] for entry in environ if entry.startswith(b"RANK=")), None)
        if rank is not None:
            found[int(rank)] = pid
    return [pid for _, pid in sorted(found.items())]


def start_ranks(job: Path, ranks: int, *arguments: str, **environ: str) -> list[subprocess.Popen[str]]:
    """One process per rank. Their output is to be read by `finish`."""
    port = str(free_port())
    processes = []
    for rank in range(ranks):
        names = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "tests.contract.ranks", str(job), *arguments]
        processes.append(
            subprocess.Popen(
                command,
                env=os.environ | names | {"OMP_NUM_THREADS": "1"} | environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


@contextmanager
def ending(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """None of them lives longer than the block."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                for rank in rank_pids(process):  # torchrun that is killed leaves its ranks behind
                    os.kill(rank, signal.SIGKILL)
                process.kill()
                process.wait()


def finish(processes: list[subprocess.Popen[str]], timeout_s: float = 300) -> list[tuple[int, str]]:
    """Exit status and output of each. None is left behind."""
    with ending(*processes):
        return [(process.wait(timeout_s), process.communicate()[0]) for process in processes]


def train(job: Path, ranks: int, *arguments: str) -> Job:
    """Runs all ranks to their end."""
    for rank, (status, output) in enumerate(finish(start_ranks(job, ranks, *arguments))):
        assert status == 0, f"rank {rank} ended with {status}:\n{output[-4000:]}"
    return load_job(job)


def _main() -> int:
    from elasticctr.collective.run import run
    from elasticctr.errors import ElasticCTRError

    try:
        result = run(load_job(sys.argv[1]), resume="--resume" in sys.argv)
    except ElasticCTRError as e:
        sys.stderr.write(f"{e}\n")
        return e.exit_status
    return 0 if result.is_finished else 130


if __name__ == "__main__":
    sys.exit(_main())
