"""The client against real pservers: a remote step is a local one, bit for bit, whatever happens to connections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.ps.pservers import LocalPservers
from tests.unit.ps.trainer.remote_steps import DIM, Model, check_rows, head, push, step_local

from elasticctr.errors import DeadlineExceeded, FailedPrecondition
from elasticctr.ps.trainer.client import CursorError, EraError, PushHead, PushKind, RowGradients
from elasticctr.table import Table


def test_a_remote_step_is_a_local_one(pservers: LocalPservers, tables: list[Table], model: Model) -> None:
    client = pservers.client()
    for step in range(8):
        batch = model.batch(step)
        fetch = client.start_pull(batch.lookups, insert=True)
        out = model.arrays()
        for t in range(2):
            fetch.pool(t, model.layouts[t], out[t])
        push(client, model, batch, head(step))
        client.wait_pushes()
        wanted = step_local(tables, model, batch, step)
        for got, expected in zip(out, wanted, strict=True):
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one, other)
    assert len(tables[1]) > 0
    check_rows(client, model, tables, range(8))
    assert client.cursors([9, 10]) == [[8, 0], [8, 0]]
    stats = client.stats()
    assert stats["pushes"] == 8 and stats["resent"] == 0 and stats["outstanding"] == 0


def test_a_pull_sent_before_a_push_is_answered_does_not_wait_for_python(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client()
    fetches = [client.start_pull(model.batch(seed).lookups, insert=True) for seed in range(4)]
    for fetch in fetches:
        assert fetch.wait(60_000)
    assert fetches[0].step == 0


def test_a_restarted_pserver_gets_what_it_lacks_and_nothing_twice(
    pservers: LocalPservers, tables: list[Table], model: Model, tmp_path: Path
) -> None:
    client = pservers.client()
    for step in range(3):
        batch = model.batch(step)
        client.start_pull(batch.lookups, insert=True).wait(60_000)
        push(client, model, batch, head(step))
        step_local(tables, model, batch, step)
    client.wait_pushes()
    saved = tmp_path / "saved"
    saved.mkdir()
    for shard in range(2):
        client.control(shard, "save", directory=str(saved))
    batches = [model.batch(step) for step in range(3, 6)]
    client.start_pull(batches[0].lookups, insert=True).wait(60_000)
    step_local(tables, model, batches[0], 3)
    pservers.stop(1)
    push(client, model, batches[0], head(3))
    with pytest.raises(DeadlineExceeded, match=rf"pserver 1 \({pservers.addresses[1]}\)"):
        client.wait_pushes(timeout_s=0.3)
    pservers.restart(1, saved)
    client.wait_pushes()
    # The rows made by the pull after the save are made again by the next one that inserts.
    for step, batch in enumerate(batches[1:], 4):
        client.start_pull(batch.lookups, insert=True).wait(60_000)
        step_local(tables, model, batch, step)
        push(client, model, batch, head(step))
        client.wait_pushes()
    assert client.cursors([9]) == [[6], [6]]
    assert client.stats()["reconnects"] >= 1
    for table, shard in ((0, 0),):
        batch = batches[1]
        fetch = client.start_pull(batch.lookups, insert=False)
        feasigns = batch.lookups[table].feasigns
        mine = np.array([_shard_of(int(f), 2) == shard for f in feasigns])
        np.testing.assert_array_equal(fetch.rows(table)[mine], tables[table].get(feasigns).weights[mine])


def _shard_of(feasign: int, shards: int) -> int:
    from elasticctr import _native

    return int(_native.shards_of(np.array([feasign], dtype=np.uint64), shards)[0])


def test_a_push_that_was_applied_counts_once(pservers: LocalPservers, tables: list[Table], model: Model) -> None:
    first, second = pservers.client(), pservers.client(trainer=2)
    batch = model.batch(0)
    first.start_pull(batch.lookups, insert=True).wait(60_000)
    step_local(tables, model, batch, 0)
    for client in (first, second):
        push(client, model, batch, head(0))
        client.wait_pushes()
    assert second.stats()["applied_before"] == 2
    check_rows(first, model, tables, range(1))


def test_a_cursor_tells_who_has_what(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client()
    batch = model.batch(0)
    push(client, model, batch, head(0))
    client.wait_pushes()
    push(client, model, batch, head(5))
    for _ in range(2):
        with pytest.raises(CursorError, match="pserver") as caught:
            client.wait_pushes()
        assert (caught.value.chunk, caught.value.cursor) == (9, 1)
        assert caught.value.shard in (0, 1)
        assert isinstance(caught.value, FailedPrecondition) and caught.value.code == "FailedPrecondition"
    client.drop()
    client.wait_pushes()
    client.set_cursors(9, [3, 1])
    push(client, model, batch, head(1))  # only for the second one
    client.wait_pushes()
    assert client.cursors([9]) == [[1], [2]]
    with pytest.raises(FailedPrecondition, match="spans the cursor of pserver 0"):
        client.push_rows(PushHead(chunk=9, from_batch=2, to_batch=5, weight=1), [])


def test_work_begun_before_a_rollback_is_refused(pservers: LocalPservers, model: Model) -> None:
    """After it the cursors are those of the push, but the rows that were made for it are gone."""
    late, other = pservers.client(), pservers.client(trainer=2)
    batch = model.batch(0)
    late.start_pull(batch.lookups, insert=True).wait(60_000)
    for server in pservers.servers:
        server.load("", era=3)
    push(late, model, batch, head(0))
    for _ in range(2):
        with pytest.raises(EraError, match=r"pserver \d .*work of era 0.* is in era 3") as caught:
            late.wait_pushes()
        assert caught.value.era == 3 and caught.value.code == "FailedPrecondition"
    with pytest.raises(EraError):
        late.cursors([9])
    with pytest.raises(EraError):
        late.set_dense(np.zeros(50, dtype=np.float32))
    fetch = late.start_pull(batch.lookups, insert=True)
    with pytest.raises(EraError):
        fetch.rows(0)
    other.set_era(3)
    assert other.cursors([9]) == [[0], [0]] and not other.start_pull(batch.lookups, insert=False).rows(0).any()
    late.drop()
    late.set_era(3)
    late.start_pull(batch.lookups, insert=True).wait(60_000)
    push(late, model, batch, head(0))
    late.wait_pushes()
    assert late.cursors([9]) == [[1], [1]]


def test_dense_parts_make_one_vector(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client()
    values, got = np.arange(50, dtype=np.float32), np.zeros(50, dtype=np.float32)
    assert client.set_dense(values)
    assert not client.set_dense(got)
    client.pull_dense(got)
    np.testing.assert_array_equal(got, values)
    batch = model.batch(0)
    fetch = client.start_pull(batch.lookups, insert=True, wants_dense=True)
    before = fetch.dense_version
    client.push(head(0, wants_dense=True), batch.lookups, model.layouts, batch.gradients, np.ones(50, dtype=np.float32))
    client.wait_pushes()
    assert client.copy_dense(got) > before
    np.testing.assert_array_equal(got, values - np.float32(0.5))


def test_deltas_are_added(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client()
    batch = model.batch(0)
    before = client.start_pull(batch.lookups, insert=True).rows(0).copy()
    feasigns = batch.lookups[0].feasigns
    n = len(feasigns)
    delta = np.random.default_rng(1).normal(size=(n, 1 + DIM)).astype(np.float32)
    ones, none = np.ones(n, dtype=np.float32), np.zeros(0, dtype=np.float32)
    empty = RowGradients(np.zeros(0, dtype=np.uint64), none, none, np.zeros((0, 2), dtype=np.float32))
    client.push_rows(head(0, kind=PushKind.deltas), [RowGradients(feasigns, ones, ones, delta), empty])
    client.wait_pushes()
    np.testing.assert_array_equal(client.start_pull(batch.lookups, insert=False).rows(0), before + delta)


def test_gradients_that_are_not_finite_reach_nobody(pservers: LocalPservers, tables: list[Table], model: Model) -> None:
    client = pservers.client()
    batch = model.batch(0)
    before = client.start_pull(batch.lookups, insert=True).rows(0).copy()
    batch.gradients[0][0][3, 3] = np.nan
    push(client, model, batch, head(0))
    client.wait_pushes()
    np.testing.assert_array_equal(client.start_pull(batch.lookups, insert=False).rows(0), before)
    assert client.cursors([9]) == [[1], [1]]
    assert client.stats()["not_finite"] >= 1
