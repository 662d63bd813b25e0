"""A pserver as its own process: what it learns from pushes, what it refuses, how it is saved, loaded and stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.process.ps.pserver_process import (
    DENSE,
    FEASIGNS,
    JOB,
    TABLES,
    Process,
    connect,
    gradients,
    head,
    rows_of,
    set_group,
)

from elasticctr.errors import FailedPrecondition, Unauthorized
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.shape import JobShape
from elasticctr.ps.trainer.client import CursorError, GroupMode
from elasticctr.table import Table
from elasticctr.train.job import load_job


@pytest.fixture
def pair() -> Iterator[list[Process]]:
    processes = [Process(shard, 2) for shard in range(2)]
    yield processes
    for process in processes:
        process.kill()


def test_pull_push_and_dense_over_two_processes(pair: list[Process]) -> None:
    client = connect(pair)
    assert client.set_dense(np.arange(DENSE, dtype=np.float32))
    assert not client.set_dense(np.zeros(DENSE, np.float32))
    assert not rows_of(client, FEASIGNS)[0].any()
    before = rows_of(client, FEASIGNS, insert=True)
    table = Table(TABLES[0])
    table.insert_rows(FEASIGNS)
    assert np.array_equal(before[0], table.get(FEASIGNS).weights)
    client.push_rows(head(0), gradients(FEASIGNS), np.full(DENSE, 2.0, np.float32))
    client.wait_pushes()
    after = rows_of(client, FEASIGNS)
    rate = TABLES[0].segments[0].optimizer.learning_rate
    assert np.allclose(after[0], before[0] - rate * 0.125, atol=1e-7)
    out = np.zeros(DENSE, np.float32)
    client.pull_dense(out)
    assert np.array_equal(out, np.arange(DENSE, dtype=np.float32) - 1.0)
    assert client.cursors([9, 10]) == [[1, 0], [1, 0]]
    stats = [client.control(s, "stats") for s in range(2)]
    assert sum(s["rows"] for s in stats) == 2 * len(FEASIGNS)
    assert all(s["is_ready"] and s["role"] == "primary" and s["step"] == 1 for s in stats)


def test_a_push_counts_once_and_a_gap_is_refused(pair: list[Process]) -> None:
    client = connect(pair)
    rows_of(client, FEASIGNS, insert=True)
    for first in (0, 1):
        client.push_rows(head(first), gradients(FEASIGNS))
    client.wait_pushes()
    once = rows_of(client, FEASIGNS)
    other = connect(pair, trainer=2)
    other.push_rows(head(0), gradients(FEASIGNS))
    other.wait_pushes()
    assert np.array_equal(rows_of(client, FEASIGNS)[0], once[0])
    assert other.stats()["applied_before"] == 2
    other.push_rows(head(5), gradients(FEASIGNS))
    with pytest.raises(CursorError) as refused:
        other.wait_pushes()
    assert (refused.value.chunk, refused.value.cursor) == (9, 2)
    assert np.array_equal(rows_of(client, FEASIGNS)[0], once[0])


def test_gradients_that_are_not_finite_change_nothing_and_count_as_seen(pair: list[Process]) -> None:
    client = connect(pair)
    before = rows_of(client, FEASIGNS, insert=True)
    client.push_rows(head(0), gradients(FEASIGNS, scale=np.nan))
    client.wait_pushes()
    assert np.array_equal(rows_of(client, FEASIGNS)[0], before[0])
    assert client.cursors([9]) == [[1], [1]]


def test_save_and_load_by_another_number_of_pservers(pair: list[Process], tmp_path: Path) -> None:
    client = connect(pair)
    client.set_dense(np.arange(DENSE, dtype=np.float32))
    rows_of(client, FEASIGNS, insert=True)
    client.push_rows(head(0), gradients(FEASIGNS), np.ones(DENSE, np.float32))
    client.wait_pushes()
    for shard in range(2):
        saved = client.control(shard, "save", directory=str(tmp_path))
        assert saved["cursors"] == {"9": 1} and saved["shards"] == 2
    expected = rows_of(client, FEASIGNS)
    alone = Process(0, 1, load=str(tmp_path))
    try:
        moved = connect([alone])
        assert np.array_equal(rows_of(moved, FEASIGNS)[0], expected[0])
        assert moved.cursors([9]) == [[1]]
        out = np.zeros(DENSE, np.float32)
        moved.pull_dense(out)
        assert np.array_equal(out, np.arange(DENSE, dtype=np.float32) - 0.5)
        moved.control(0, "load", directory=None)
        assert not rows_of(moved, FEASIGNS)[0].any()
    finally:
        alone.kill()


def test_sync_waits_for_the_group(pair: list[Process]) -> None:
    one, two = connect(pair, trainer=1), connect(pair, trainer=2)
    before = rows_of(one, FEASIGNS, insert=True)
    set_group(pair, [1, 2])
    one.push_rows(head(0, group=GroupMode.all), gradients(FEASIGNS))
    time.sleep(0.1)
    assert one.outstanding == 1
    two.push_rows(head(0, chunk=10, weight=30, group=GroupMode.all), gradients(FEASIGNS, scale=5.0))
    one.wait_pushes()
    two.wait_pushes()
    rate = TABLES[0].segments[0].optimizer.learning_rate
    assert np.allclose(rows_of(one, FEASIGNS)[0], before[0] - rate * 0.125 * (0.25 + 0.75 * 5), atol=1e-6)


def test_strangers_are_refused(pair: list[Process]) -> None:
    attach = {"role": "trainer", "id": 1, "build": build(), "identity": "it", "strategy": "async"}
    for other in ({**attach, "build": "0.0"}, {**attach, "identity": "another"}, {**attach, "strategy": "sync"}):
        with pytest.raises(FailedPrecondition):
            connect(pair, attach=other)
    with pytest.raises(FailedPrecondition):
        connect(pair, job=JOB + 1)
    guarded = Process(0, 1, token="a long secret")
    try:
        with pytest.raises(Unauthorized):
            connect([guarded], token="another secret")
        assert connect([guarded], token="a long secret").cursors([1]) == [[0]]
    finally:
        guarded.kill()


JOB_FILE = """
run_dir: {run}
schema: {{slots: [{{name: user}}, {{name: item}}]}}
model: {{name: lr}}
data: {{train: {run}/none.txt}}
cluster: {{pservers: 2}}
"""


def test_the_command_serves_by_itself_without_torch_until_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB_FILE.format(run=tmp_path))
    job = load_job(path)
    shape = JobShape(TABLES, DENSE, {"schema": "s", "model": "lr", "options": {}})
    (tmp_path / f"shape-{job_identity(job).digest[:16]}.json").write_text(json.dumps(shape.dump()))
    code = "import sys; from elasticctr.cli.roles import pserver; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    command = [sys.executable, "-m", "elasticctr", "pserver", "--config", str(path), "--shard", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "primary of shard 1 of 2: ready" in line, line
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
