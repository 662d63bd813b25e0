"""A checkpoint of one process as one that pservers can load: its tables as they are, its dense.pt as a flat vector.

Optimizer state is carried over. Only torch reads dense.pt, so a child process does:
`python -m elasticctr.ps.coordinator.dense_start CHECKPOINT TARGET < job.json`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from elasticctr.config import parse_settings
from elasticctr.errors import ElasticCTRError, InternalError
from elasticctr.storage.atomic import write_json
from elasticctr.train.checkpoint import open_checkpoint
from elasticctr.train.dense_parts import part_path, write_dense_part
from elasticctr.train.job import Job

_TIMEOUT_S = 600.0
_SUFFIX = ".table"


def has_parts(checkpoint: Path) -> bool:
    """Whether pservers saved it."""
    return (checkpoint / "pserver.0.json").exists()


def convert(job: Job, checkpoint: Path, target: Path) -> None:
    """Makes `target`, a directory that every pserver can load. Tables are links to those of the checkpoint."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for table in checkpoint.glob(f"*{_SUFFIX}"):
        (target / f"{table.name.removesuffix(_SUFFIX)}.0{_SUFFIX}").symlink_to(table.absolute())
    _ask_child(job, checkpoint, target)
    about = {"format": 1, "shard": 0, "shards": 1, "step": open_checkpoint(checkpoint).step, "forgotten": 0}
    write_json(target / "pserver.0.json", {**about, "cursors": {}, "ahead": [], "files": {}})


def _ask_child(job: Job, checkpoint: Path, target: Path) -> None:
    command = [sys.executable, "-m", "elasticctr.ps.coordinator.dense_start", str(checkpoint), str(target)]
    text = job.model_dump_json(by_alias=True)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InternalError(f"{checkpoint}: the process that reads its dense.pt did not answer: {e}") from e
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        raise InternalError(f"{checkpoint}: its dense parameters cannot be taken over: {reason}")


def _main() -> int:
    from elasticctr.train.learner import Learner

    checkpoint, target = sys.argv[1:]
    try:
        learner = Learner(parse_settings(Job, json.load(sys.stdin), "job"))
        found = open_checkpoint(checkpoint)
        learner.check_identity(found)
        learner.load_dense(found)
        write_dense_part(part_path(Path(target), 0), learner.dense_vector())
    except ElasticCTRError as e:
        sys.stderr.write(f"{e}\n")
        return e.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(_main())
