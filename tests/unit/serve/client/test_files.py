"""Files of lines are sent unchanged; unreadable ones are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticctr import _native
from elasticctr.config import parse_settings
from elasticctr.data.schema import Format, Schema
from elasticctr.errors import ConfigError, Corruption, DataError, NotFound
from elasticctr.serve.client.files import Asked, read_requests, repeat_requests

SCHEMA = parse_settings(
    Schema,
    {
        "format": "csv",
        "slots": [{"name": "C1", "separator": "|"}, {"name": "I1", "kind": "dense", "transform": "log1p"}],
    },
    "test",
)


def test_lines_are_sent_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\tä\t2\r\n\n0\tb\n1\tc")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"0\td\n"))
    got = list(read_requests([str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")], 2, Format.CRITEO))
    assert [asked.lines for asked in got] == [["1\tä\t2\r", "0\tb"], ["1\tc"], ["0\td"]]
    assert [asked.count for asked in got] == [2, 1, 1]
    assert all(asked.options == {"format": "criteo"} for asked in got)


def test_without_a_format_the_server_decides(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (asked,) = read_requests([str(tmp_path / "a.txt")], 10)
    assert asked == Asked(1, lines=["x"])


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\nb\xff\xffd\n")
    with pytest.raises(DataError, match=r"a.txt:2: not UTF-8"):
        list(read_requests([str(tmp_path / "a.txt")], 10))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(read_requests([str(tmp_path / "none")], 10))


def test_parquet_by_column_name(tmp_path: Path) -> None:
    table = pa.table({"C1": ["a", None, "c"], "C2": [[1, 2], [], None], "I1": [0.5, None, 2.0], "click": [1, 0, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    got = list(read_requests([str(tmp_path / "a.parquet")], 2))
    assert [asked.samples for asked in got] == [
        [{"C1": "a", "C2": [1, 2], "I1": 0.5, "click": 1}, {"C2": [], "click": 0}],
        [{"C1": "c", "I1": 2.0, "click": 1}],
    ]
    assert got[0].options == {"ignore_unknown": True}


def test_damaged_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(Corruption, match="not a complete Parquet file"):
        list(read_requests([str(tmp_path / "a.parquet")], 2))


def test_csv_needs_a_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("C1,I1\na,1\n")
    with pytest.raises(ConfigError, match="--schema"):
        list(read_requests([str(tmp_path / "a.csv")], 2))


def test_csv_with_a_schema_is_sent_as_feasigns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("C1,I1,click\na|b,1,0\n,0,1\n")
    (asked,) = read_requests([str(tmp_path / "a.csv")], 10, schema=SCHEMA)
    a, b = (_native.feature_hash("C1", value) for value in (b"a", b"b"))
    assert asked.options == {"values": "feasigns"}
    assert asked.samples is not None
    assert asked.samples[0] == {"C1": [a, b], "I1": pytest.approx(0.6931472)}
    assert asked.samples[1] == {"I1": 0.0}


def test_repeat() -> None:
    one, two = Asked(1, lines=["a"]), Asked(1, lines=["b"])
    assert list(repeat_requests(iter([one, two]), 3)) == [one, two] * 3
