"""The client against real pservers: a remote step is a local one, bit for bit, whatever happens to connections."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.unit.ps.pservers import LocalPservers

from elasticctr.errors import (
    ConfigError,
    DeadlineExceeded,
    ElasticCTRError,
    FailedPrecondition,
    Unauthorized,
    Unavailable,
)
from elasticctr.ps.trainer.client import CursorError, EraError, Merger, PsClient, PushHead, PushKind, RowGradients
from elasticctr.table import (
    AdamSettings,
    AdmissionSettings,
    FtrlSettings,
    Layout,
    Lookup,
    SegmentSettings,
    SgdSettings,
    SlotTarget,
    Table,
    TableSettings,
)

SAMPLES, SLOTS, DIM = 60, 3, 4
TABLES = (
    TableSettings(
        name="main",
        segments=(
            SegmentSettings(name="linear", dim=1, optimizer=FtrlSettings()),
            SegmentSettings(name="embedding", dim=DIM, optimizer=AdamSettings()),
        ),
    ),
    TableSettings(
        name="rare",
        segments=(SegmentSettings(name="embedding", dim=2, optimizer=SgdSettings()),),
        admission=AdmissionSettings(count=2),
    ),
)


@dataclass
class Batch:
    lookups: list[Lookup]
    gradients: list[list[NDArray[np.float32]]]
    clicks: NDArray[np.float32]
    shows: NDArray[np.float32]


class Model:
    """Layouts over two tables: sums, means, a slot without its linear weight, a sequence."""

    def __init__(self, tables: list[Table]) -> None:
        self.layouts: list[Layout] = [
            tables[0].layout(
                [
                    SlotTarget(0, {"linear": 0, "embedding": 2}),
                    SlotTarget(1, {"embedding": 2 + DIM}, "mean"),
                    SlotTarget(2, {"embedding": 0}, "last", 1, 2),
                ]
            ),
            tables[1].layout([SlotTarget(2, {"embedding": 2 + 2 * DIM})]),
        ]

    @staticmethod
    def arrays() -> list[list[NDArray[np.float32]]]:
        flat = np.zeros((SAMPLES, 4 + 2 * DIM), dtype=np.float32)
        return [[flat, np.zeros((SAMPLES, 2, DIM), dtype=np.float32)], [flat]]

    def batch(self, seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 4, SLOTS * SAMPLES)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = rng.integers(0, 150, offsets[-1]).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        gradients = self.arrays()
        for array in (*gradients[0], gradients[1][0]):
            array[:] = rng.normal(size=array.shape).astype(np.float32)
        return Batch(
            [layout.lookup(values, offsets, SAMPLES) for layout in self.layouts],
            gradients,
            rng.integers(0, 2, SAMPLES).astype(np.float32),
            rng.integers(1, 5, SAMPLES).astype(np.float32),
        )


def head(step: int, chunk: int = 9, **more: object) -> PushHead:
    return PushHead(chunk=chunk, from_batch=step, to_batch=step + 1, weight=SAMPLES, now=step, **more)  # type: ignore[arg-type]


def step_local(tables: list[Table], model: Model, batch: Batch, step: int) -> list[list[NDArray[np.float32]]]:
    out = model.arrays()
    for t, table in enumerate(tables):
        table.find(batch.lookups[t], insert=True)
        table.pull(batch.lookups[t], model.layouts[t], out[t])
    for t, table in enumerate(tables):
        table.push(
            batch.lookups[t],
            model.layouts[t],
            batch.gradients[t],
            batch.clicks,
            batch.shows,
            now=step,
            rate_scale=0.5,
            gradient_scale=2.0,
        )
    return out


def push(client: PsClient, model: Model, batch: Batch, given: PushHead) -> None:
    given.rate_scale = 0.5
    client.push(
        given,
        batch.lookups,
        model.layouts,
        batch.gradients,
        None,
        batch.clicks,
        batch.shows,
        gradient_scale=2.0,
    )


def check_rows(client: PsClient, model: Model, tables: list[Table], seeds: range) -> None:
    """Everything the batches touched is the same on the pservers as in the tables."""
    for seed in seeds:
        batch = model.batch(seed)
        fetch = client.start_pull(batch.lookups, insert=False)
        for t, table in enumerate(tables):
            np.testing.assert_array_equal(fetch.rows(t), table.get(batch.lookups[t].feasigns).weights)


@pytest.fixture
def tables() -> list[Table]:
    return [Table(settings) for settings in TABLES]


@pytest.fixture
def model(tables: list[Table]) -> Model:
    return Model(tables)


@pytest.fixture
def pservers() -> Iterator[LocalPservers]:
    cluster = LocalPservers(TABLES, shards=2, dense_floats=50)
    yield cluster
    cluster.close()


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


def test_dense_gradients_do_not_go_as_int8(pservers: LocalPservers) -> None:
    with pytest.raises(ConfigError, match="not int8"):
        pservers.client(dense_gradients_as="int8")


def test_dense_gradients_step_as_they_are_rounded(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client(dense_gradients_as="bf16")
    client.set_dense(np.zeros(50, dtype=np.float32))
    gradient = np.random.default_rng(5).normal(scale=1e-9, size=50).astype(np.float32)  # fp16 would make zeros of them
    batch = model.batch(0)
    client.push(head(0), batch.lookups, model.layouts, batch.gradients, gradient)
    client.wait_pushes()
    got = np.empty(50, dtype=np.float32)
    client.pull_dense(got)
    np.testing.assert_array_equal(got, -0.5 * torch.from_numpy(gradient).bfloat16().float().numpy())


@pytest.mark.parametrize(("encoding", "tolerance"), [("fp16", 1e-3), ("int8", 1e-2)])
def test_smaller_encodings_are_close(
    pservers: LocalPservers, tables: list[Table], model: Model, encoding: str, tolerance: float
) -> None:
    client = pservers.client(rows_as=encoding, gradients_as=encoding)
    batch = model.batch(0)
    rows = client.start_pull(batch.lookups, insert=True).rows(0)
    step_local(tables, model, batch, 0)
    push(client, model, batch, head(0))
    client.wait_pushes()
    again = client.start_pull(batch.lookups, insert=False).rows(0)
    assert not np.array_equal(rows, again)
    np.testing.assert_allclose(again, tables[0].get(batch.lookups[0].feasigns).weights, atol=tolerance)


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


@pytest.mark.parametrize("is_mean", [True, False])
def test_a_merger_makes_one_batch_of_several(pservers: LocalPservers, tables: list[Table], is_mean: bool) -> None:
    client = pservers.client()
    table = tables[0]
    layout = table.layout([SlotTarget(0, {"linear": 0, "embedding": 1})])
    rng = np.random.default_rng(0)
    merger = client.merger(is_mean=is_mean)
    other = tables[1].layout([])
    sums: dict[int, NDArray[np.float64]] = {}
    weights = [20, 60]
    dense = np.zeros(50)
    for weight in weights:
        values = rng.integers(0, 30, weight).astype(np.uint64)
        lookup = layout.lookup(values, np.arange(weight + 1, dtype=np.int32), weight)
        nothing = other.lookup(values, np.arange(weight + 1, dtype=np.int32), weight)
        gradient = rng.normal(size=(weight, 1 + DIM)).astype(np.float32)
        dense_gradient = rng.normal(size=50).astype(np.float32)
        assert merger.add(
            [lookup, nothing],
            [layout, other],
            [[gradient], []],
            dense_gradient,
            np.ones(weight, np.float32),
            weight=weight,
        )
        share = weight / sum(weights) if is_mean else 1.0
        dense += share * dense_gradient
        for value, row in zip(values, gradient, strict=True):
            sums.setdefault(int(value), np.zeros(1 + DIM))
            sums[int(value)] += share * row
    bad = np.full((2, 1 + DIM), np.inf, dtype=np.float32)
    lookup = layout.lookup(np.array([1, 2], np.uint64), np.arange(3, dtype=np.int32), 2)
    nothing = other.lookup(np.array([1, 2], np.uint64), np.arange(3, dtype=np.int32), 2)
    assert not merger.add([lookup, nothing], [layout, other], [[bad], []], weight=2)
    assert (merger.batches, merger.weight) == (3, 80)
    # SGD-free check: deltas add what was merged to rows as they are.
    keys = np.array(sorted(sums), dtype=np.uint64)
    wanted_lookup = layout.lookup(keys, np.arange(len(keys) + 1, dtype=np.int32), len(keys))
    nothing = other.lookup(keys, np.arange(len(keys) + 1, dtype=np.int32), len(keys))
    before = client.start_pull([wanted_lookup, nothing], insert=True).rows(0).copy()
    client.set_dense(np.zeros(50, dtype=np.float32))
    given = PushHead(chunk=1, from_batch=0, to_batch=3, weight=merger.weight, kind=PushKind.deltas)
    client.push_merged(given, merger)
    merger.clear()
    client.wait_pushes()
    after = client.start_pull([wanted_lookup, nothing], insert=False).rows(0)
    np.testing.assert_allclose(after - before, np.array([sums[int(k)] for k in keys]), atol=1e-5)
    got = np.zeros(50, dtype=np.float32)
    client.pull_dense(got)
    np.testing.assert_allclose(got, dense, atol=1e-5)
    assert merger.batches == 0 and isinstance(merger, Merger)


def test_one_merged_batch_is_that_batch(pservers: LocalPservers, tables: list[Table], model: Model) -> None:
    client = pservers.client()
    merger = client.merger()
    batch = model.batch(0)
    client.start_pull(batch.lookups, insert=True).wait(60_000)
    for t, table in enumerate(tables):
        table.find(batch.lookups[t], insert=True)
        table.push(batch.lookups[t], model.layouts[t], batch.gradients[t], batch.clicks, batch.shows)
    assert merger.add(batch.lookups, model.layouts, batch.gradients, None, batch.clicks, batch.shows, weight=SAMPLES)
    client.push_merged(PushHead(chunk=9, from_batch=0, to_batch=1, weight=SAMPLES), merger)
    client.wait_pushes()
    check_rows(client, model, tables, range(1))


def test_strangers_are_refused(pservers: LocalPservers) -> None:
    with pytest.raises(FailedPrecondition, match=r"pserver \d \(127\.0\.0\.1:\d+\): "):
        pservers.client(job=78)
    with pytest.raises(FailedPrecondition, match="ask the coordinator for the list of pservers"):
        pservers.client(addresses=pservers.addresses[::-1])
    with pytest.raises(Unavailable, match="could not be asked in time: no connection"):
        pservers.client(addresses=[pservers.addresses[0], f"127.0.0.1:{_closed_port()}"], timeout_s=0.3)


def test_a_wrong_token_is_refused() -> None:
    cluster = LocalPservers(TABLES, shards=1, token="secret")
    try:
        cluster.client()
        with pytest.raises(Unauthorized, match=r"pserver 0 \(127\.0\.0\.1"):
            cluster.client(token="guess")
    finally:
        cluster.close()


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class _Hostile(threading.Thread):
    """Between a client and its pserver; changes what the pserver says."""

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._random = random.Random(seed)
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            far = socket.create_connection(self._target)
            for pair in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()
        self._listener.close()

    def _copy(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while data := bytearray(source.recv(65536)):
                if is_answer and self._random.random() < 0.3:
                    for _ in range(3):
                        data[self._random.randrange(min(len(data), 100))] = self._random.randrange(256)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()


def test_hostile_answers_end_in_errors(pservers: LocalPservers, model: Model) -> None:
    proxies = [_Hostile(address, seed) for seed, address in enumerate(pservers.addresses)]
    for proxy in proxies:
        proxy.start()
    batch = model.batch(0)
    failures = 0
    for _ in range(6):
        try:
            client = pservers.client(addresses=[proxy.address for proxy in proxies], timeout_s=0.2)
            for step in range(4):
                fetch = client.start_pull(batch.lookups, insert=True, wants_dense=True)
                push(client, model, batch, head(step, chunk=3))
                fetch.rows(0)
                client.wait_pushes(timeout_s=0.2)
        except ElasticCTRError:
            failures += 1
    assert failures > 0
    for proxy in proxies:
        proxy.is_over = True
    pservers.client().wait_pushes()
