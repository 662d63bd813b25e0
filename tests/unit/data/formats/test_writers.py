"""Written files read back bit for bit, and appear whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml
import zstandard

from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import Parser
from elasticctr.data.formats.writers import merge_slots, open_writer, schema_yaml
from elasticctr.data.schema import DenseSlot, Format, Pooling, Schema, SparseSlot
from elasticctr.errors import AlreadyExists, ConfigError, DataError, InternalError

EXTREMES = np.array([0, 1, 9, 10, 2**32, 2**63, 2**64 - 1], dtype=np.uint64)


def make_batch(schema: Schema, n: int, seed: int = 0, most: int = 4) -> Batch:
    draw = np.random.default_rng(seed)
    slots = len(schema.sparse)
    counts = draw.integers(0, most, slots * n) if most > 1 else np.ones(slots * n, dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = draw.integers(0, 2**64, int(offsets[-1]), dtype=np.uint64)
    values[: min(len(EXTREMES), len(values))] = EXTREMES[: len(values)]
    dense = draw.normal(size=(n, schema.dense_dim)).astype(np.float32)
    if dense.size:
        special = [0, 1, -1, 1e-30, 3.4e38, 16777217, 1 / 3]
        dense.flat[: min(7, dense.size)] = special[: min(7, dense.size)]
    labels = draw.integers(0, 2, (n, len(schema.label))).astype(np.float32)
    weights = draw.random(n).astype(np.float32) if schema.weight else np.ones(n, dtype=np.float32)
    return Batch(schema, labels, dense, values, offsets, weights, np.ones(n, dtype=np.float32))


def assert_same(a: Batch, b: Batch) -> None:
    for name in ("labels", "dense", "values", "offsets", "weights", "shows"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def _schema(
    format: Format, dense: bool = True, labels: tuple[str, ...] = ("click",), weight: str | None = None
) -> Schema:
    dense_slots = (DenseSlot(name="d", dim=3), DenseSlot(name="e")) if dense else ()
    return Schema(
        format=format,
        label=labels,
        weight=weight,
        slots=(SparseSlot(name="7"), *dense_slots, SparseSlot(name="long_name_8")),
    )


@pytest.mark.parametrize(
    "schema",
    [
        _schema(Format.SLOT, labels=("click", "buy"), weight="w"),
        _schema(Format.FEASIGN, dense=False),
        _schema(Format.LIBFFM),
    ],
    ids=lambda schema: schema.format,
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_text_reads_back_bit_for_bit(tmp_path: Path, schema: Schema, suffix: str) -> None:
    batch = make_batch(schema, 500)
    path = tmp_path / f"x.txt{suffix}"
    with open_writer(path, schema) as writer:
        writer.write(batch)
    data = path.read_bytes()
    if suffix == ".gz":
        data = gzip.decompress(data)
    elif suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    parsed = Parser(schema, threads=1).parse(data, 1)
    assert not parsed.bad
    assert_same(parsed.batch, batch)


def test_the_slot_line_is_as_documented(tmp_path: Path) -> None:
    schema = Schema(slots=(DenseSlot(name="dense_feature", dim=2), SparseSlot(name="1"), SparseSlot(name="2")))
    batch = Batch(
        schema,
        np.array([[1], [0]], dtype=np.float32),
        np.array([[0.05, 2], [0, -1.5]], dtype=np.float32),
        np.array([123, 2**64 - 1, 456], dtype=np.uint64),
        np.array([0, 2, 2, 2, 3], dtype=np.int32),
        np.ones(2, dtype=np.float32),
        np.ones(2, dtype=np.float32),
    )
    with open_writer(tmp_path / "x", schema) as writer:
        writer.write(batch)
    assert (tmp_path / "x").read_text() == (
        "click:1 dense_feature:0.05 dense_feature:2 1:123 1:18446744073709551615\n"
        "click:0 dense_feature:0 dense_feature:-1.5 2:456\n"
    )


def test_feasign_keeps_shows(tmp_path: Path) -> None:
    schema = Schema(format=Format.FEASIGN, slots=(SparseSlot(name="9"),))
    batch = make_batch(schema, 3, most=1)
    batch = Batch(
        schema, batch.labels, batch.dense, batch.values, batch.offsets, batch.weights, np.array([1, 7, 2.5], np.float32)
    )
    with open_writer(tmp_path / "x", schema) as writer:
        writer.write(batch)
    assert_same(Parser(schema, threads=1).parse((tmp_path / "x").read_bytes(), 1).batch, batch)


def test_libsvm_merges_slots_and_numbers_dense_values(tmp_path: Path) -> None:
    schema = _schema(Format.LIBSVM)
    merged = Schema(format=Format.LIBSVM, slots=(*schema.dense, SparseSlot(name="features")))
    batch = make_batch(schema, 50)
    batch.values[batch.values <= 4] = 77
    flat = merge_slots(batch, merged)
    for i in (0, 3, 49):
        expected = [v for s in range(2) for v in batch.slot(s)[0][batch.slot(s)[1][i] : batch.slot(s)[1][i + 1]]]
        np.testing.assert_array_equal(flat.values[flat.offsets[i] : flat.offsets[i + 1]], np.array(expected, np.uint64))
    with open_writer(tmp_path / "x", merged) as writer:
        writer.write(flat)
    assert_same(Parser(merged, threads=1).parse((tmp_path / "x").read_bytes(), 1).batch, flat)
    flat.values[0] = 2
    with (
        pytest.raises(DataError, match="feasign 2 would read as a dense value"),
        open_writer(tmp_path / "y", merged) as w,
    ):
        w.write(flat)
    assert not (tmp_path / "y").exists()


def test_parquet_holds_lists_of_uint64(tmp_path: Path) -> None:
    schema = _schema(Format.PARQUET)
    batch = make_batch(schema, 40)
    with open_writer(tmp_path / "x.parquet", schema) as writer:
        writer.write(batch)
        writer.write(batch)
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    assert table.num_rows == 80
    values, offsets = batch.slot(1)
    expected = [values[offsets[i] : offsets[i + 1]].tolist() for i in range(40)]
    assert table["long_name_8"].to_pylist() == expected * 2
    assert table["d"].to_pylist()[:40] == batch.dense[:, :3].tolist()


def test_csv_joins_values_and_leaves_missing_cells_empty(tmp_path: Path) -> None:
    schema = Schema(format=Format.CSV, slots=(SparseSlot(name="a", separator=";"), DenseSlot(name="x")))
    batch = Batch(
        schema,
        np.array([[1], [0], [0]], np.float32),
        np.array([[0.5], [np.nan], [3]], np.float32),
        np.array([5, 2**64 - 1, 6], np.uint64),
        np.array([0, 2, 2, 3], np.int32),
        np.ones(3, np.float32),
        np.ones(3, np.float32),
    )
    with open_writer(tmp_path / "x.csv", schema) as writer:
        writer.write(batch)
        writer.write(batch.slice(1, 2))
    rows = [[cell.strip('"') for cell in line.split(",")] for line in (tmp_path / "x.csv").read_text().splitlines()]
    assert rows == [
        ["click", "a", "x"],
        ["1", "5;18446744073709551615", "0.5"],
        ["0", "", ""],
        ["0", "6", "3"],
        ["0", "", ""],
    ]


def test_nothing_is_left_of_a_failed_file(tmp_path: Path) -> None:
    schema = _schema(Format.SLOT)
    with pytest.raises(RuntimeError), open_writer(tmp_path / "x", schema) as writer:
        writer.write(make_batch(schema, 5))
        raise RuntimeError("power cut")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    schema = _schema(Format.SLOT)
    with pytest.raises(InternalError, match="the disk is full"), open_writer(tmp_path / "x", schema) as writer:
        writer.write(make_batch(schema, 5))
    assert list(tmp_path.iterdir()) == []


def test_existing_files_and_bad_names_are_refused(tmp_path: Path) -> None:
    schema = _schema(Format.SLOT)
    (tmp_path / "x").write_text("mine")
    with pytest.raises(AlreadyExists), open_writer(tmp_path / "x", schema):
        pass
    assert (tmp_path / "x").read_text() == "mine"
    with pytest.raises(ConfigError, match="a directory belongs"), open_writer(tmp_path / "x" / "y", schema):
        pass
    with pytest.raises(ConfigError, match="compressed inside"), open_writer(tmp_path / "z.gz", _schema(Format.PARQUET)):
        pass
    colon = Schema(slots=(SparseSlot(name="a:b"),))
    with pytest.raises(ConfigError, match="colon"), open_writer(tmp_path / "z", colon):
        pass


def test_criteo_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    schema = Schema(
        format=Format.CRITEO, slots=(DenseSlot(name="d", dim=13), *(SparseSlot(name=str(i)) for i in range(26)))
    )
    batch = make_batch(schema, 3, most=1)
    with pytest.raises(DataError, match="whole numbers"), open_writer(tmp_path / "x", schema, (True,) * 26) as writer:
        writer.write(batch)
    several = make_batch(schema, 30, most=4)
    several.dense[:] = 1
    with (
        pytest.raises(DataError, match="one value per slot"),
        open_writer(tmp_path / "x", schema, (True,) * 26) as writer,
    ):
        writer.write(several)


def test_schema_yaml_reads_back() -> None:
    schema = Schema(
        format=Format.CSV,
        label=("a", "b"),
        delimiter=";",
        slots=(
            DenseSlot(name="d", dim=2, transform="scale", min=(0.0, 1.0), diff=(2.0, 3.0)),
            SparseSlot(name="1", pooling=Pooling.NONE, separator="|", max_values=7),
        ),
    )
    assert Schema.model_validate(yaml.safe_load(schema_yaml(schema))) == schema
