"""Formats and schemas guessed from a few lines of each kind of log."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elasticctr.data.guessing.columns import guess_parquet
from elasticctr.data.guessing.guess import guess_text
from elasticctr.data.schema import DenseSlot, Format, Schema, SparseSlot
from elasticctr.errors import DataError

CRITEO = "\t".join(["1", *(str(i) for i in range(12)), "", *(f"{i:08x}" for i in range(25)), ""])


def _guess(text: str, format: Format | None = None) -> Schema:
    return guess_text(text.encode(), "log", format, whole=True).schema


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("click:0 dense_feature:0.05 1:12 2:9\nclick:1 dense_feature:0.5 1:18446744073709551615\n", Format.SLOT),
        ("1 0 12:101 13:102\n1 1 99:101\n", Format.FEASIGN),
        (CRITEO + "\n", Format.CRITEO),
        ("1 5:1 7:0.5\n0 3:1\n", Format.LIBSVM),
        ("-1 5:1 7:0.5\n+1 3:1\n", Format.LIBSVM),
        ("1 0:5:1 1:7:0.5\n0 0:3:1\n", Format.LIBFFM),
        ("click,site,price\n0,a,1.5\n1,b,2.5\n", Format.CSV),
        ("label\tuser\n1\tu1\n0\tu2\n", Format.CSV),
    ],
)
def test_format(text: str, format: Format) -> None:
    assert _guess(text).format is format


def test_a_few_bad_lines_do_not_change_the_format() -> None:
    assert _guess("click:0 1:2\n" * 20 + "what is this\n" * 3).format is Format.SLOT


def test_slot_schema() -> None:
    schema = _guess("click:0 d:0.5 d:1 b:cat 10:1 9:2 9:3\nclick:1 d:0 d:1e-3 b:dog\n")
    assert schema.label == ("click",)
    assert schema.slots == (
        DenseSlot(name="d", dim=2),
        SparseSlot(name="b", values="string"),
        SparseSlot(name="9"),
        SparseSlot(name="10"),
    )


def test_slot_label_under_another_name() -> None:
    assert _guess("10:5 bought:1\n10:6 bought:0\n").label == ("bought",)
    with pytest.raises(DataError, match="none can be the label"):
        _guess("a:5 b:7\na:6 b:8\n")


def test_feasign_slots_are_ordered_by_number() -> None:
    assert [s.name for s in _guess("1 0 5:101 6:20\n1 1 7:3\n").slots] == ["3", "20", "101"]


def test_csv_columns() -> None:
    schema = _guess("id;click;I1;score;tags;city\n12;0;3;0.5;a|b;x\n13;1;;;c;y\n14;0;5;1.5;a|c|d;\n")
    assert (schema.delimiter, schema.header, schema.label) == (";", True, ("click",))
    assert schema.slots == (
        SparseSlot(name="id", values="id"),
        DenseSlot(name="I1", transform="log1p"),
        DenseSlot(name="score"),
        SparseSlot(name="tags", values="string", separator="|"),
        SparseSlot(name="city", values="string"),
    )


def test_csv_without_column_names() -> None:
    schema = _guess("0,17,a\n1,18,b\n")
    assert (schema.header, schema.label, [s.name for s in schema.slots]) == (False, ("0",), ["1", "2"])


def test_parquet_columns() -> None:
    table = pa.table(
        {
            "label": pa.array([0, 1], pa.int8()),
            "user": pa.array([1, 2**64 - 1], pa.uint64()),
            "tags": pa.array([["a"], []], pa.list_(pa.string())),
            "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "when": pa.array([1, 2], pa.timestamp("s")),
        }
    )
    schema = guess_parquet(table, "x.parquet")
    assert schema.label == ("label",)
    assert schema.slots == (
        SparseSlot(name="user", values="id"),
        SparseSlot(name="tags", values="string"),
        DenseSlot(name="v", dim=2),
    )
    with pytest.raises(DataError, match="none can be the label"):
        guess_parquet(pa.table({"a": [5, 6]}), "x.parquet")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x7fELF\0\0\1", "is binary"),
        (bytes(range(128, 256)) * 50, "is binary"),
        (b"hello\nworld\n", "not a known format"),
        (b"a,b\n", "no rows"),
        (b"a,a\n0,1\n1,0\n", "same name"),
    ],
)
def test_what_is_no_log(data: bytes, what: str) -> None:
    with pytest.raises(DataError, match=what) as error:
        guess_text(data, "x.log", None, whole=True)
    assert str(error.value).startswith("x.log: ")


def test_a_cut_off_last_line_does_not_count() -> None:
    head = b"1 0 5:101 6:20\n1 1 7:3\n1 1 8:99999"
    assert [s.name for s in guess_text(head, "log", None, whole=False).schema.slots] == ["3", "20", "101"]


def test_a_format_that_does_not_fit() -> None:
    with pytest.raises(DataError, match="libffm"):
        _guess("click,a\n0,1\n", Format.LIBFFM)
