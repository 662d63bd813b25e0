"""Every role dies and hangs over a Parquet log, whose chunks are row groups rather than bytes."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from elasticctr.data.convert import convert_log
from tests.cluster.training import Log, Training

_ROWS_PER_GROUP = 500
_BLOWS = ("trainer-0", "trainer-1", "pserver-0", "trainer-2", "coordinator-0")


def make_parquet_log(log: Log, path: Path) -> Log:
    """The same samples, as Parquet files of many row groups."""
    from elasticctr.config import load_yaml, parse_settings
    from elasticctr.data.schema import Schema

    schema = parse_settings(Schema, load_yaml(log.path / "schema.yaml"), "schema")
    for split in ("train", "valid"):
        for part in sorted((log.path / split).glob("part-*.txt")):
            out = path / split / part.with_suffix(".parquet").name
            out.parent.mkdir(parents=True, exist_ok=True)
            convert_log(str(part), out, schema=schema, schema_path=path / "schema.yaml", overwrite=True)
            pq.write_table(pq.read_table(out), out, row_group_size=_ROWS_PER_GROUP)
    return Log(path, log.rows)


@pytest.mark.slow
@pytest.mark.promise(
    "trainers, a pserver and the coordinator are killed and stopped while they read Parquet",
    "the run finishes, and every sample is learned from exactly once",
)
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_every_role_is_killed_and_stopped(strategy: str, training_log: Log, tmp_path: Path) -> None:
    log = make_parquet_log(training_log, tmp_path / "log")
    settings = {"strategy": strategy, "trainers": 3, "max_restarts": 50, "chunk_mib": 0.05}
    with Training(tmp_path, log, seed=41, epochs=12, **settings) as training:
        training.start()
        roles = list(_BLOWS)
        training.random.shuffle(roles)
        for number, role in enumerate(roles):
            training.random_moment(0.01 + 0.1 * number, 0.08 + 0.1 * number)
            if training.random.random() < 0.3:
                pid = training.pause(role)
                time.sleep(training.random.uniform(0.5, 5.0))
                training.go_on(pid)
            else:
                training.kill(role)
        training.finish()
        training.check()
