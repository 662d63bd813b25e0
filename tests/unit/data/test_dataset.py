"""A dataset yields every sample once, in a reproducible order, and resumes at the exact sample."""

from __future__ import annotations

import gc
import gzip
import itertools
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, Corruption, DataError, FailedPrecondition

SCHEMA = Schema.model_validate(
    {
        "slots": [
            {"kind": "sparse", "name": "user"},
            {"kind": "sparse", "name": "tags", "pooling": "mean"},
            {"kind": "dense", "name": "price", "dim": 2},
        ]
    }
)
SMALL = {"block_bytes": 1024, "max_line_bytes": 4096}


def make_line(i: int) -> str:
    tags = " ".join(f"tags:{i * 10 + k}" for k in range(i % 4))
    return f"click:{i % 3 == 0:d} price:{i / 8} price:{-i} user:{i} {tags}".strip()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """1000 samples in three files of three compressions; the user slot numbers them."""
    root = tmp_path / "logs"
    root.mkdir()
    lines = [make_line(i) + "\n" for i in range(1000)]
    (root / "a.txt").write_text("".join(lines[:400]))
    (root / "b.gz").write_bytes(gzip.compress("".join(lines[400:700]).encode()))
    (root / "c.zst").write_bytes(zstandard.ZstdCompressor().compress("".join(lines[700:]).encode()))
    return root


def users(batch: Batch) -> list[int]:
    return batch.slot(0)[0].tolist()


def bits(batches: list[Batch]) -> list[tuple[bytes, ...]]:
    return [tuple(a.tobytes() for a in (b.labels, b.dense, b.values, b.offsets, b.weights, b.shows)) for b in batches]


def dataset(location: object, **options: object) -> Dataset:
    return Dataset(str(location), SCHEMA, ReadOptions.model_validate({**SMALL, **options}), seed=5)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_every_sample_once_in_order(logs: Path, prefetch: int) -> None:
    batches = list(dataset(logs, prefetch=prefetch).iterate(64))
    assert [len(b) for b in batches] == [64] * 15 + [40]
    assert [u for b in batches for u in users(b)] == list(range(1000))
    whole = Batch.concat(batches)
    assert whole.labels[:, 0].tolist() == [float(i % 3 == 0) for i in range(1000)]
    assert np.array_equal(whole.dense, np.array([[i / 8, -i] for i in range(1000)], np.float32))
    values, offsets = whole.slot(1)
    assert np.diff(offsets).tolist() == [i % 4 for i in range(1000)]
    assert values.tolist() == [i * 10 + k for i in range(1000) for k in range(i % 4)]


def test_batches_made_on_demand_are_those_made_ahead(logs: Path) -> None:
    data = dataset(logs, shuffle_rows=300, prefetch=3)
    before = set(threading.enumerate())
    with data.iterate(64, is_ahead=False) as batches:
        assert not [t for t in threading.enumerate() if t not in before]
        on_demand = [(batch, batches.state()) for batch in batches]
    with data.iterate(64) as batches:
        ahead = [(batch, batches.state()) for batch in batches]
    assert bits([batch for batch, _ in on_demand]) == bits([batch for batch, _ in ahead])
    assert [state for _, state in on_demand] == [state for _, state in ahead]


def test_the_last_small_batch_can_be_dropped(logs: Path) -> None:
    assert [len(b) for b in dataset(logs).iterate(300, drop_last=True)] == [300, 300, 300]


def test_shuffling_is_a_permutation_that_differs_by_epoch_and_seed(logs: Path) -> None:
    def order(epoch: int, **options: object) -> list[int]:
        return [u for b in dataset(logs, shuffle_rows=300, **options).iterate(64, epoch=epoch) for u in users(b)]

    first = order(0)
    assert sorted(first) == list(range(1000))
    assert first == order(0, prefetch=0) == order(0, workers=3)
    other = order(1)
    assert sorted(other) == list(range(1000))
    assert other != first
    again = Dataset(str(logs), SCHEMA, ReadOptions(shuffle_rows=300, **SMALL), seed=6)
    assert [u for b in again.iterate(64) for u in users(b)] != first
    # Mixed well enough that neighbours are rarely neighbours still.
    assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(first)) < 30


@pytest.mark.parametrize("shuffle_rows", [0, 1, 150, 5000])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_resumed_stream_is_the_uninterrupted_one(logs: Path, shuffle_rows: int, prefetch: int) -> None:
    data = dataset(logs, shuffle_rows=shuffle_rows, prefetch=prefetch)
    whole = list(data.iterate(37, epoch=2))
    rng = random.Random(shuffle_rows)
    for stop in [0, 1, len(whole) - 1, len(whole), *(rng.randrange(len(whole)) for _ in range(6))]:
        with data.iterate(37, epoch=2) as batches:
            head = [next(batches) for _ in range(stop)]
            state = json.loads(json.dumps(batches.state()))
        tail = list(dataset(logs, shuffle_rows=shuffle_rows, prefetch=prefetch).iterate(37, epoch=2, start=state))
        assert bits(head + tail) == bits(whole)
        assert state["samples"] == sum(len(b) for b in head)


def test_a_resumed_stream_reads_no_block_before_its_own(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset(logs, prefetch=0)
    with data.iterate(50) as batches:
        for _ in range(19):
            next(batches)
        state = batches.state()
    parsed = []
    parse = data._reader.parse

    def note(piece: Any) -> Any:
        parsed.append(piece)
        return parse(piece)

    monkeypatch.setattr(data._reader, "parse", note)
    assert users(next(data.iterate(50, start=state))) == list(range(950, 1000))
    assert len(parsed) <= 4


def test_another_batch_size_may_continue(logs: Path) -> None:
    data = dataset(logs, shuffle_rows=100)
    with data.iterate(100) as batches:
        first = users(next(batches))
        rest = [u for b in data.iterate(7, start=batches.state()) for u in users(b)]
    assert first + rest == [u for b in data.iterate(1000) for u in users(b)]


def test_a_position_in_other_data_is_refused(logs: Path) -> None:
    with dataset(logs).iterate(10) as batches:
        next(batches)
        state = batches.state()
    for other in (dataset(logs, shuffle_rows=10), dataset(logs, fraction=(0, 0.5)), dataset(logs / "a.txt")):
        with pytest.raises(FailedPrecondition, match="other data"):
            other.iterate(10, start=state)
    with pytest.raises(FailedPrecondition, match="epoch 0, not in epoch 1"):
        dataset(logs).iterate(10, start=state, epoch=1)
    with pytest.raises(FailedPrecondition, match="not a position"):
        dataset(logs).iterate(10, start={"file": 1})


def test_fractions_part_the_samples(logs: Path) -> None:
    def kept(*fraction: float, seed: int = 0) -> set[int]:
        return {u for b in dataset(logs, fraction=fraction, split_seed=seed).iterate(100) for u in users(b)}

    train, valid = kept(0, 0.8), kept(0.8, 1)
    assert train | valid == set(range(1000))
    assert not train & valid
    assert 130 < len(valid) < 270
    assert kept(0.8, 1, seed=1) != valid


def test_bad_lines_are_counted_and_shown(tmp_path: Path) -> None:
    lines = [make_line(i) for i in range(2000)]
    lines[99] = "click:2 user:1"
    lines[500] = "x" * 5000
    lines[1999] = "click:0 user:18446744073709551616"
    path = tmp_path / "log"
    path.write_text("\n".join(lines))
    data = dataset(path)
    assert sum(len(b) for b in data.iterate(100)) == 1997
    assert (data.stats.lines, data.stats.samples, data.stats.bad) == (2000, 1997, 3)
    assert [text.split(": ")[0] for text in data.stats.examples] == [f"{path}:{n}" for n in (100, 501, 2000)]
    assert "5000 bytes" in data.stats.examples[1]
    with pytest.raises(DataError, match=rf"^{path}:100: ") as caught:
        list(dataset(path, on_bad="fail").iterate(100))
    assert (caught.value.path, caught.value.line) == (str(path), 100)


def test_too_many_bad_lines_mean_a_wrong_format(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(make_line(i) + "\n" if i % 20 else "click:0 user:x\n" for i in range(3000)))
    with pytest.raises(DataError, match=rf"max_bad_fraction 0.01 .* is the format really 'slot'\? {path}:1: "):
        list(dataset(path).iterate(100))
    assert sum(len(b) for b in dataset(path, max_bad_fraction=0.1).iterate(100)) == 2850


def test_only_bad_lines_are_an_error_however_few(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(DataError, match="all 2 lines are bad; is the format really 'slot'"):
        list(dataset(path, max_bad_fraction=1.0).iterate(100))


def test_binary_garbage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(random.Random(1).randbytes(1 << 20))
    with pytest.raises(DataError, match="bad"):
        list(dataset(path).iterate(100))


def test_no_sample_at_all(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    with pytest.raises(DataError, match=r"no samples.*empty"):
        list(dataset(path).iterate(100))
    path.write_text(make_line(1) + "\n")
    empty = next(f for f in ((0, 0.001), (0.999, 1.0)) if not _keeps(path, f))
    with pytest.raises(DataError, match="none of 1 lines falls into fraction"):
        list(dataset(path, fraction=empty).iterate(100))


def _keeps(path: Path, fraction: tuple[float, float]) -> bool:
    try:
        return bool(list(dataset(path, fraction=fraction).iterate(1)))
    except DataError:
        return False


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_comes_after_the_samples_before_it(logs: Path, prefetch: int) -> None:
    (logs / "b.gz").write_bytes((logs / "b.gz").read_bytes()[:-9])
    batches = dataset(logs, prefetch=prefetch).iterate(100)
    assert [u for _ in range(4) for u in users(next(batches))] == list(range(400))
    with pytest.raises(Corruption, match=r"b\.gz: damaged or truncated"):
        for _ in batches:
            pass
    batches.close()
    assert list(batches) == []


def test_no_thread_outlives_its_iterator(logs: Path) -> None:
    before = set(threading.enumerate())

    def threads() -> int:
        return sum(t.name.startswith("elasticctr") for t in threading.enumerate() if t not in before)

    data = dataset(logs, prefetch=2, shuffle_rows=64)
    list(data.iterate(64))
    assert threads() == 0
    batches = data.iterate(64)
    next(batches)
    batches.close()
    batches.close()
    assert threads() == 0
    with data.iterate(64) as abandoned:
        next(abandoned)
    assert threads() == 0
    lost = data.iterate(64)
    next(lost)
    del lost
    gc.collect()
    deadline = time.monotonic() + 60
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == 0


def test_a_batch_size_of_nothing(logs: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        dataset(logs).iterate(0)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Reading ahead stops at the queue: a slow consumer does not make the whole file come into memory."""
    path = tmp_path / "log"
    path.write_text("".join(make_line(i) + "\n" for i in range(50_000)))
    data = dataset(path, prefetch=2, workers=2, block_bytes=1024)
    reads = []
    parse = data._reader.parse

    def note(block: Any) -> Any:
        reads.append(1)
        return parse(block)

    data._reader.parse = note  # type: ignore[method-assign]
    with data.iterate(10) as batches:
        next(batches)
        time.sleep(0.5)
        assert 0 < len(reads) < path.stat().st_size / 1024 / 10


def test_the_rows_of_an_epoch_are_judged_from_what_is_read(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"part-{number}").write_text("".join(make_line(i) + "\n" for i in range(1000)))
    batches = dataset(tmp_path / "part-*", block_bytes=4096).iterate(500)
    for _ in range(5):
        next(batches)
    estimate = batches._dataset.estimate_rows(batches.state())
    assert estimate is not None and 3000 < estimate < 5000
    batches.close()
