"""Parquet columns become slots; bad rows are numbered across row groups."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, Corruption, DataError


def schema(*slots: dict[str, object], **rest: object) -> Schema:
    return Schema.model_validate({"format": "parquet", "slots": slots, **rest})


def sparse(name: str, **rest: object) -> dict[str, object]:
    return {"kind": "sparse", "name": name, **rest}


def read(tmp_path: Path, slots: Schema, columns: dict[str, pa.Array], **options: object) -> tuple[Batch, Dataset]:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=options.pop("row_group_size", 1 << 20))
    data = Dataset(str(path), slots, ReadOptions.model_validate(options))
    return Batch.concat(list(data.iterate(1000))), data


def bags(batch: Batch, slot: int) -> list[list[int]]:
    values, offsets = batch.slot(slot)
    return [values[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def hashed(slot: str, text: str) -> int:
    return xxhash.xxh64_intdigest(text.encode(), xxhash.xxh64_intdigest(slot.encode(), 0))


CLICK = pa.array([1, 0, 1], pa.int8())


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (pa.array([1, None, 2**64 - 1], pa.uint64()), "auto", [[1], [], [2**64 - 1]]),
        (pa.array([1, None, 3], pa.int16()), "auto", [[1], [], [3]]),
        (pa.array([True, False, None]), "auto", [[1], [0], []]),
        (pa.array(["a", None, ""]), "auto", [["a"], [], [""]]),
        (pa.array(["a", None, "b"], pa.large_string()), "auto", [["a"], [], ["b"]]),
        (pa.array(["a", None, "b"], pa.string_view()), "auto", [["a"], [], ["b"]]),
        (pa.array([b"a", None, b"b"], pa.binary()), "auto", [["a"], [], ["b"]]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "auto", [["a"], ["b"], ["a"]]),
        (pa.array([[1, 2], None, []], pa.list_(pa.int64())), "auto", [[1, 2], [], []]),
        (pa.array([["a", None, "b"], None, []]), "auto", [["a", "b"], [], []]),
        (pa.array([["a"], ["b", "c"], []], pa.large_list(pa.string())), "auto", [["a"], ["b", "c"], []]),
        (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)), "auto", [[1, 2], [3, 4], [5, 6]]),
        (pa.array([1, None, 3]), "string", [["1"], [], ["3"]]),
        (pa.array(["7", None, "18446744073709551615"]), "id", [[7], [], [2**64 - 1]]),
        (pa.array([None, None, None], pa.null()), "auto", [[], [], []]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_every_kind_of_column(tmp_path: Path, column: pa.Array, values: str, expected: list[list[int | str]]) -> None:
    batch, data = read(tmp_path, schema(sparse("s", values=values)), {"click": CLICK, "s": column})
    as_ids = [[hashed("s", v) if isinstance(v, str) else v for v in bag] for bag in expected]
    assert bags(batch, 0) == as_ids
    assert data.stats.bad == 0


def test_dense_lists_and_weights(tmp_path: Path) -> None:
    slots = schema(
        sparse("u"),
        {"kind": "dense", "name": "v", "dim": 2},
        {"kind": "dense", "name": "x", "column": "other"},
        weight="w",
    )
    columns = {
        "click": pa.array([0.5, 0, 1]),
        "u": pa.array([1, 2, 3]),
        "v": pa.array([[1.5, None], None, [3, 4]], pa.list_(pa.float32())),
        "other": pa.array([1, None, -3], pa.int64()),
        "w": pa.array([2, None, 0.5]),
    }
    batch, _ = read(tmp_path, slots, columns)
    assert batch.labels[:, 0].tolist() == [0.5, 0, 1]
    assert batch.dense.tolist() == [[1.5, 0, 1], [0, 0, 0], [3, 4, -3]]
    assert batch.weights.tolist() == [2, 1, 0.5]


def test_bad_rows_are_numbered_through_row_groups(tmp_path: Path) -> None:
    n = 3000
    click = np.zeros(n)
    click[[10, 2999]] = [2, np.nan]
    users = np.arange(n)
    users[1500] = -1
    price: list[float | None] = [1.0] * n
    price[700] = float("inf")
    slots = schema(sparse("user"), {"kind": "dense", "name": "price"})
    columns = {"click": pa.array(click), "user": pa.array(users), "price": pa.array(price)}
    batch, data = read(tmp_path, slots, columns, row_group_size=1000)
    wrong = {10, 700, 1500, 2999}
    assert bags(batch, 0) == [[i] for i in range(n) if i not in wrong]
    path = tmp_path / "log.parquet"
    assert [e.split(": ")[0] for e in data.stats.examples] == [f"{path}:{i + 1}" for i in sorted(wrong)]


def test_columns_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="column 'u' holds double; a sparse slot needs integers or strings"):
        read(tmp_path, schema(sparse("u")), {"click": CLICK, "u": pa.array([1.0, 2.0, 3.0])})
    with pytest.raises(DataError, match="no column 'user'; its columns are: click, x"):
        read(tmp_path, schema(sparse("user")), {"click": CLICK, "x": CLICK})
    dates = pa.array([1, 2, 3], pa.date32())
    with pytest.raises(ConfigError, match="'click' holds date32"):
        read(tmp_path, schema(sparse("u")), {"click": dates, "u": CLICK})


def big(tmp_path: Path, **options: object) -> Dataset:
    n = 100_000
    columns = {
        "click": pa.array(np.arange(n) % 2),
        "user": pa.array(np.arange(n)),
        "city": pa.array([str(i % 50) for i in range(n)]),
    }
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=40_000)
    return Dataset(str(path), schema(sparse("user"), sparse("city")), ReadOptions.model_validate(options), seed=3)


@pytest.mark.parametrize("shuffle_rows", [0, 50_000])
def test_resuming(tmp_path: Path, shuffle_rows: int) -> None:
    data = big(tmp_path, shuffle_rows=shuffle_rows)
    whole = [b.values.tobytes() for b in data.iterate(7000)]
    for stop in (0, 1, 5, 12, 15):
        with data.iterate(7000) as batches:
            for _ in range(stop):
                next(batches)
            state = json.loads(json.dumps(batches.state()))
        assert [b.values.tobytes() for b in data.iterate(7000, start=state)] == whole[stop:]


def test_a_split_goes_by_content(tmp_path: Path) -> None:
    def kept(low: float, high: float) -> set[int]:
        return {u for b in big(tmp_path, fraction=(low, high)).iterate(10_000) for u in b.slot(0)[0].tolist()}

    train, rest = kept(0, 0.9), kept(0.9, 1)
    assert not train & rest
    assert train | rest == set(range(100_000))
    assert len(rest) == pytest.approx(10_000, rel=0.05)


@pytest.mark.parametrize("damage", ["truncated", "text", "empty"])
def test_a_file_that_is_not_parquet(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"click": CLICK, "u": CLICK}), path)
    stored = path.read_bytes()
    path.write_bytes({"truncated": stored[:-20], "text": b"click:1 u:1\n" * 100, "empty": b""}[damage])
    with pytest.raises(Corruption, match=r"log\.parquet: not a whole Parquet file"):
        list(Dataset(str(path), schema(sparse("u"))))


def test_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    values = pa.array(np.random.default_rng(1).integers(0, 1 << 60, 50_000))
    columns = {"click": pa.array(np.zeros(50_000)), "u": values}
    pq.write_table(pa.table(columns), path, compression="zstd", write_page_checksum=True, use_dictionary=False)
    stored = bytearray(path.read_bytes())
    for at in range(len(stored) // 2, len(stored) // 2 + 64):
        stored[at] ^= 0xFF
    path.write_bytes(stored)
    with pytest.raises(Corruption, match=r"log\.parquet"):
        list(Dataset(str(path), schema(sparse("u"))))


def test_parquet_given_as_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    pq.write_table(pa.table({"click": CLICK, "u": CLICK}), path)
    for format in ("slot", "csv"):
        wrong = Schema.model_validate({"format": format, "slots": [sparse("u")]})
        with pytest.raises(DataError, match="is a Parquet file; set format: parquet"):
            list(Dataset(str(path), wrong))


def test_strings_of_a_sequence_are_hashed_like_its_target(tmp_path: Path) -> None:
    past = sparse("past", values="string", pooling="none", max_values=2, target="item")
    columns = {
        "click": CLICK,
        "item": pa.array(["a", "b", None]),
        "past": pa.array([["x", "a", "b"], None, ["a"]]),
    }
    batch, _ = read(tmp_path, schema(sparse("item", values="string"), past), columns)
    a, b = hashed("item", "a"), hashed("item", "b")
    assert bags(batch, 0) == [[a], [b], []]
    assert bags(batch, 1) == [[a, b], [], [a]]  # the last ones, in order
