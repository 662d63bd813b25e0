"""Parquet and Arrow rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticctr.errors import Corruption, DataError, ElasticCTRError, NotFound
from elasticctr.storage import open_store
from elasticctr.versions.interchange import RowInfo, open_rows, open_writer

FEASIGNS = np.array([2**64 - 1, 0, 5], np.uint64)
VALUES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def read(path: Path, encoding: str | None = None) -> tuple[list[int], list[list[float]]]:
    source = open_rows(str(path), encoding)
    blocks = list(source.blocks())
    assert source.count == sum(len(b[0]) for b in blocks)
    return np.concatenate([b[0] for b in blocks]).tolist(), np.concatenate([b[1] for b in blocks]).view("<f4").tolist()


def test_parquet_round_trip(tmp_path: Path) -> None:
    with open_writer(open_store(str(tmp_path)), "rows.parquet", "parquet", RowInfo("fp32", 2, 8)) as writer:
        writer.write(FEASIGNS[:1], VALUES[:1].view(np.uint8))
        writer.write(FEASIGNS[1:], VALUES[1:].view(np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert read(tmp_path / "rows.parquet") == (FEASIGNS.tolist(), VALUES.tolist())
    assert pq.read_table(tmp_path / "rows.parquet").schema.names == ["feasign", "values"]


@pytest.mark.parametrize(
    "rows",
    [
        pa.array(VALUES.tolist(), pa.list_(pa.float32())),
        pa.array(VALUES.tolist(), pa.list_(pa.float64())),
        pa.array(VALUES.tolist(), pa.large_list(pa.float32())),
        pa.array([row.tobytes() for row in VALUES], pa.binary()),
        pa.array([row.tobytes() for row in VALUES], pa.binary(8)),
    ],
    ids=str,
)
@pytest.mark.parametrize("signed", [False, True])
def test_layouts_others_write(tmp_path: Path, rows: pa.Array, signed: bool) -> None:
    keys = pa.array(FEASIGNS.view(np.int64) if signed else FEASIGNS)
    table = pa.table({"key": keys, "value": rows})
    pq.write_table(table, tmp_path / "rows")
    assert read(tmp_path / "rows") == (FEASIGNS.tolist(), VALUES.tolist())
    with pa.OSFile(str(tmp_path / "rows"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.slice(1), max_chunksize=1)
    assert read(tmp_path / "rows") == (FEASIGNS.tolist()[1:], VALUES.tolist()[1:])


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"feasign": pa.array(FEASIGNS)}, NotFound, "no column row"),
        ({"feasign": pa.array(["a", "b", "c"]), "row": pa.array(VALUES.tolist())}, DataError, "uint64 or int64"),
        ({"feasign": pa.array([1, None, 3]), "row": pa.array(VALUES.tolist())}, DataError, "a feasign is null"),
        ({"feasign": pa.array([1, 2, 3]), "row": pa.array([[1.0], [2.0], None])}, DataError, "a row is null"),
        (
            {"feasign": pa.array([1, 2, 3]), "row": pa.array([[1.0], [2.0], [None]])},
            DataError,
            "number in a row is null",
        ),
        (
            {"feasign": pa.array([1, 2, 3]), "row": pa.array([[1.0], [2.0], []])},
            DataError,
            "not all rows have 1 numbers",
        ),
        ({"feasign": pa.array([1, 2]), "row": pa.array([b"abcd", b"abc"])}, DataError, "not all rows have 4 bytes"),
        ({"feasign": pa.array([1, 2]), "row": pa.array([1, 2])}, DataError, "lists of floats or binary"),
    ],
)
def test_what_is_no_table_of_rows(
    tmp_path: Path, columns: dict[str, pa.Array], error: type[Exception], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(error, match=message):
        read(tmp_path / "rows.parquet")


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with open_writer(open_store(str(tmp_path)), path.name, "parquet", RowInfo("fp32", 2, 8)) as writer:
        writer.write(FEASIGNS, VALUES.view(np.uint8))
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(Corruption, match=r"rows\.parquet"):
        read(path)
    rng = np.random.default_rng(1)
    for _ in range(200):
        mutated = bytearray(data)
        for at in rng.integers(4, len(data), 4):
            mutated[at] = int(rng.integers(0, 256))
        path.write_bytes(mutated)
        try:
            read(path)
        except ElasticCTRError:
            continue


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1:2\n")
    pq.write_table(pa.table({"feasign": pa.array([1]), "row": pa.array([[1.0]])}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="files of several formats: columnar, text"):
        open_rows(str(tmp_path))


@pytest.mark.promise("an Arrow or Parquet file with a damaged column name", "Corruption naming the file, no traceback")
def test_a_damaged_column_name(tmp_path: Path) -> None:
    table = pa.table({"feasign": FEASIGNS, "values": pa.array(VALUES.tolist(), pa.list_(pa.float32(), 2))})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    data = (tmp_path / "rows.arrow").read_bytes()
    for name in (b"feasign", b"values"):
        (tmp_path / "rows.arrow").write_bytes(data.replace(name, b"\xff" + name[1:]))
        with pytest.raises(Corruption, match=r"rows\.arrow"):
            read(tmp_path / "rows.arrow")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e39])
def test_a_number_that_is_not_finite(tmp_path: Path, number: float) -> None:
    values = pa.array([[1.0, number]], pa.list_(pa.float64(), 2))
    pq.write_table(pa.table({"feasign": pa.array([1], pa.uint64()), "values": values}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="not a finite"):
        read(tmp_path / "rows.parquet")
