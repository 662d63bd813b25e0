"""A cached log gives the same batches as the log, shuffled and resumed too; damage is found."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from elasticctr.data.batch import Batch
from elasticctr.data.cache import Cache, build_cache, ensure_cache, is_cache
from elasticctr.data.cache.part import PART_ROWS
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import AlreadyExists, ConfigError, Corruption, DataError, FailedPrecondition, NotFound
from elasticctr.storage import resolve

SCHEMA = Schema.model_validate(
    {
        "weight": "w",
        "slots": [
            {"kind": "sparse", "name": "user"},
            {"kind": "sparse", "name": "tags"},
            {"kind": "dense", "name": "price", "dim": 2},
        ],
    }
)


def write_log(path: Path, count: int = 3000, first: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for i in range(first, first + count):
            tags = "".join(f" tags:{i * 10 + k}" for k in range(i % 4))
            file.write(f"click:{i % 3 == 0:d} w:{1 + i % 2} price:{i / 8} price:{-i} user:{i}{tags}\n")
    return path


def make(log: Path, directory: Path, **options: object) -> Cache:
    read = ReadOptions.model_validate(options)
    return build_cache(directory, resolve(str(log), read), SCHEMA, read)


def bits(batches: list[Batch]) -> list[tuple[bytes, ...]]:
    return [
        tuple(np.ascontiguousarray(a).tobytes() for a in (b.labels, b.dense, b.values, b.offsets, b.weights, b.shows))
        for b in batches
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.data.cache.build.PART_ROWS", 500)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("batch_size", [100, 333, 500, 1200, 5000])
def test_the_same_batches_as_from_the_log(log: Path, tmp_path: Path, batch_size: int) -> None:
    cache = make(log, tmp_path / "cache", block_bytes=1024 * 16)
    assert cache.part_count == 6
    assert len(cache) == 3000
    from_log = list(Dataset(str(log), SCHEMA).iterate(batch_size))
    from_cache = list(Dataset(str(tmp_path / "cache"), SCHEMA).iterate(batch_size))
    assert bits(from_cache) == bits(from_log)
    assert all(a.flags.writeable for b in from_cache for a in (b.labels, b.dense, b.values, b.offsets))


def test_every_sample_once_when_shuffled(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.data.cache.build.PART_ROWS", 100)
    make(log, tmp_path / "cache")
    data = Dataset(str(tmp_path / "cache"), SCHEMA, ReadOptions(shuffle_rows=450), seed=9)
    first = [u for b in data.iterate(64) for u in b.slot(0)[0].tolist()]
    second = [u for b in data.iterate(64, epoch=1) for u in b.slot(0)[0].tolist()]
    assert sorted(first) == sorted(second) == list(range(3000))
    assert first != second
    # Chunks come from all over the set, not in order.
    assert len({u // 100 for u in first[:300]}) > 2
    assert abs(np.mean(np.diff(first[:1000]))) < 20


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("shuffle_rows", [0, 700])
def test_a_resumed_stream_is_the_uninterrupted_one(log: Path, tmp_path: Path, shuffle_rows: int) -> None:
    make(log, tmp_path / "cache")
    options = ReadOptions(shuffle_rows=shuffle_rows)
    data = Dataset(str(tmp_path / "cache"), SCHEMA, options, seed=2)
    whole = list(data.iterate(90, epoch=3))
    for stop in (0, 1, 5, 17, 33, 34):
        with data.iterate(90, epoch=3) as batches:
            for _ in range(stop):
                next(batches)
            state = json.loads(json.dumps(batches.state()))
        again = Dataset(str(tmp_path / "cache"), SCHEMA, options, seed=2)
        assert bits(list(again.iterate(90, epoch=3, start=state))) == bits(whole[stop:])


def test_the_file_is_plain_arrow(log: Path, tmp_path: Path) -> None:
    make(log, tmp_path / "cache")
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "cache" / "samples.arrow"))).read_all()
    assert table.column_names == ["labels", "weights", "shows", "dense", "slot.user", "slot.tags"]
    assert table.slice(7, 1).to_pylist() == [
        {
            "labels": [0.0],
            "weights": 2.0,
            "shows": 1.0,
            "dense": [0.875, -7.0],
            "slot.user": [7],
            "slot.tags": [70, 71, 72],
        }
    ]


def test_a_configured_cache_is_made_once_and_again_only_when_content_changes(log: Path, tmp_path: Path) -> None:
    options = ReadOptions(cache=str(tmp_path / "caches"))

    def made() -> tuple[int, ...]:
        data = Dataset(str(log), SCHEMA, options)
        assert sum(len(b) for b in data.iterate(1000)) == sum(1 for _ in log.open())
        return tuple(p.stat().st_ino for p in (tmp_path / "caches").glob("*/samples.arrow"))

    first = made()
    assert len(first) == 1
    assert made() == first
    os.utime(log, (1, 1))
    assert made() == first
    text = log.read_text()
    log.write_text(text.replace("user:77 ", "user:78 "))
    assert made() != first
    second = made()
    write_log(log, 3100)
    third = made()
    assert third != second
    assert len(third) == 1


def test_a_touched_file_is_read_once_not_every_time(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ReadOptions()
    ensure_cache(tmp_path, resolve(str(log)), SCHEMA, options)
    os.utime(log, (5, 5))
    ensure_cache(tmp_path, resolve(str(log)), SCHEMA, options)
    monkeypatch.setattr("elasticctr.storage.Source.content_hash", lambda self: pytest.fail("read again"))
    ensure_cache(tmp_path, resolve(str(log)), SCHEMA, options)


def test_the_parts_of_a_split_have_caches_of_their_own(log: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    for fraction in ((0, 0.8), (0.8, 1)):
        options = ReadOptions(cache=str(tmp_path / "caches"), fraction=fraction)
        seen += [u for b in Dataset(str(log), SCHEMA, options).iterate(500) for u in b.slot(0)[0].tolist()]
    assert sorted(seen) == list(range(3000))
    assert len(list((tmp_path / "caches").iterdir())) == 2


def test_another_schema(log: Path, tmp_path: Path) -> None:
    cache = make(log, tmp_path / "cache")
    other = SCHEMA.model_copy(update={"hash_seed": 1})
    with pytest.raises(FailedPrecondition, match=f"{cache.manifest.fingerprint}.*{other.fingerprint()}"):
        Dataset(str(tmp_path / "cache"), other)
    configured = ReadOptions(cache=str(tmp_path / "caches"))
    for schema in (SCHEMA, other):
        assert len(list(Dataset(str(log), schema, configured).iterate(3000))) == 1
    assert len(list((tmp_path / "caches").iterdir())) == 1


def test_a_cache_cannot_be_split(log: Path, tmp_path: Path) -> None:
    make(log, tmp_path / "cache")
    with pytest.raises(ConfigError, match="no lines left to split"):
        Dataset(str(tmp_path / "cache"), SCHEMA, ReadOptions(fraction=(0, 0.5)))


def test_bad_lines_are_remembered(log: Path, tmp_path: Path) -> None:
    with log.open("a") as file:
        file.write("click:2 user:1\n")
    make(log, tmp_path / "cache")
    data = Dataset(str(tmp_path / "cache"), SCHEMA)
    list(data.iterate(1000))
    assert (data.stats.lines, data.stats.samples, data.stats.bad) == (3001, 3000, 1)
    assert data.stats.examples[0].startswith(f"{log}:3001: ")
    with pytest.raises(DataError, match=r"log:3001: "):
        Dataset(str(tmp_path / "cache"), SCHEMA, ReadOptions(on_bad="fail")).iterate(10)


def test_a_log_that_cannot_be_cached_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("garbage\n" * 10)
    with pytest.raises(DataError, match="all 10 lines are bad"):
        make(log, tmp_path / "cache")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]


def test_a_directory_of_someone_else_is_not_overwritten(log: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    with pytest.raises(AlreadyExists, match=r"thesis\.tex"):
        make(log, tmp_path / "home")
    with pytest.raises(AlreadyExists, match="log"):
        make(log, log)


def test_flipped_bits_are_found_wherever_they_are(log: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    make(log, directory)
    rng = random.Random(4)
    for name in ("samples.arrow", "manifest.json"):
        path = directory / name
        stored = path.read_bytes()
        places = [*range(40), *range(len(stored) - 40, len(stored)), *(rng.randrange(len(stored)) for _ in range(150))]
        for at in places:
            damaged = bytearray(stored)
            damaged[at] ^= 1 << rng.randrange(8)
            if name == "manifest.json" and _same_json(stored, bytes(damaged)):
                continue
            path.write_bytes(damaged)
            with pytest.raises((Corruption, FailedPrecondition)):
                Cache.open(directory).verify()
            with pytest.raises((Corruption, FailedPrecondition)):
                list(Dataset(str(directory), SCHEMA, ReadOptions(prefetch=0)).iterate(1000))
        path.write_bytes(stored)
    Cache.open(directory).verify()


def _same_json(a: bytes, b: bytes) -> bool:
    try:
        return bool(json.loads(a) == json.loads(b))
    except ValueError:
        return False


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_truncated(log: Path, tmp_path: Path, keep: int) -> None:
    for name in ("samples.arrow", "manifest.json"):
        directory = tmp_path / "cache"
        make(log, directory)
        path = directory / name
        path.write_bytes(path.read_bytes()[:keep].rstrip(b"\n}"))
        with pytest.raises(Corruption, match=name):
            Cache.open(directory)
    path.unlink()
    make(log, directory)
    (directory / "samples.arrow").unlink()
    with pytest.raises(Corruption, match=r"samples\.arrow"):
        Dataset(str(directory), SCHEMA)


def test_a_damaged_cache_is_made_anew_when_it_is_configured(log: Path, tmp_path: Path) -> None:
    cache = ensure_cache(tmp_path / "caches", resolve(str(log)), SCHEMA, ReadOptions())
    (cache.directory / "manifest.json").write_text("{}")
    again = ensure_cache(tmp_path / "caches", resolve(str(log)), SCHEMA, ReadOptions())
    again.verify()
    assert len(again) == 3000


def test_what_is_not_a_cache(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no cached sample set"):
        Cache.open(tmp_path)
    assert not is_cache(str(tmp_path))
    (tmp_path / "manifest.json").write_text('{"format": "something"}')
    with pytest.raises(Corruption, match="not a manifest"):
        Cache.open(tmp_path)


def test_a_reader_keeps_the_old_cache_while_a_new_one_is_made(log: Path, tmp_path: Path) -> None:
    options = ReadOptions(cache=str(tmp_path / "caches"), prefetch=0)
    batches = Dataset(str(log), SCHEMA, options).iterate(100)
    next(batches)
    write_log(log, 100, first=5000)
    assert sum(len(b) for b in Dataset(str(log), SCHEMA, options).iterate(100)) == 100
    assert sum(len(b) for b in batches) == 2900


def test_several_builds_at_once(log: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(make, log, tmp_path / "cache") for _ in range(8)]
        for future in made:
            future.result().verify()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "log"]


def test_parts_are_as_large_as_documented(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", PART_ROWS + 10)
    cache = make(log, tmp_path / "cache")
    assert [c.rows for c in cache.manifest.parts] == [65536, 10]


def test_a_schema_without_dense_or_sparse_slots(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", 50)
    for slot in ({"kind": "sparse", "name": "user"}, {"kind": "dense", "name": "price", "dim": 2}):
        schema = Schema.model_validate({"slots": [slot]})
        options = ReadOptions(cache=str(tmp_path / "caches"))
        assert bits(list(Dataset(str(log), schema, options))) == bits(list(Dataset(str(log), schema)))
