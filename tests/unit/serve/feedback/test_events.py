"""Click events are read line by line from where the last reading ended; bad lines cost only themselves."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from elasticctr.errors import DataError, FailedPrecondition
from elasticctr.serve.feedback import events
from elasticctr.serve.feedback.events import FeedbackEvent, Reading, parse_time, read_events
from elasticctr.storage import resolve


def read(path: Path, reading: Reading | None = None, *, is_final: bool = True) -> list[FeedbackEvent | DataError]:
    (source,) = resolve(str(path))
    return list(read_events(source, reading or Reading(), is_final=is_final))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def test_json_lines_and_csv_say_the_same(path: Path) -> None:
    expected = [FeedbackEvent("a", 0, 10.5), FeedbackEvent("7", 3, 20.0)]
    path.write_text('{"id": "a", "time": 10.5}\n\n{"id": 7, "index": "3", "time": "20", "more": 1}\n')
    assert read(path) == expected
    path.write_text('more, time, id ,index\nx,10.5,a,\n"y,z", 20,7,3\n')
    assert read(path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (1794000000, 1794000000.0),
        ("1794000000.5", 1794000000.5),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T02:01:00+02:00", 60.0),
    ],
)
def test_times_are_unix_seconds_or_iso_8601(text: Any, expected: float) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("value", [True, -1, 1e11, float("nan"), float("inf"), "noon", "", None, [1]])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_time(value)


def test_bad_lines_are_told_with_their_number_and_cost_only_themselves(path: Path) -> None:
    bad = ['{"id": "a"}', "[1]", "{", '{"id": true, "time": 1}', '{"id": "a", "time": 1, "index": -1}']
    bad += ['{"id": "a", "time": 1, "index": 1.5}', '{"id": ' + "[" * 50_000]
    path.write_text("\n".join(['{"id": "first", "time": 1}', *bad, '{"id": "last", "time": 1}']))
    first, *errors, last = read(path)
    assert first == FeedbackEvent("first", 0, 1.0) and last == FeedbackEvent("last", 0, 1.0)
    assert [error.line for error in errors if isinstance(error, DataError)] == [2, 3, 4, 5, 6, 7, 8]


def test_a_csv_row_of_another_width_is_bad(path: Path) -> None:
    path.write_text("id,time\na,1,2\nb\nc,3\n")
    short, long, good = read(path)
    assert isinstance(short, DataError) and isinstance(long, DataError) and good == FeedbackEvent("c", 0, 3.0)


def test_a_file_of_something_else_is_refused_whole(path: Path) -> None:
    path.write_text("user,when\na,1\n")
    with pytest.raises(DataError, match="id"):
        read(path)


def test_reading_continues_where_it_ended(path: Path) -> None:
    reading = Reading()
    path.write_text('id,time\n"a",1\nb,')
    assert read(path, reading, is_final=False) == [FeedbackEvent("a", 0, 1.0)]
    with path.open("a") as file:
        file.write("2\nc,3")
    assert read(path, reading, is_final=False) == [FeedbackEvent("b", 0, 2.0)]
    assert read(path, reading, is_final=False) == []
    assert read(path, reading) == [FeedbackEvent("c", 0, 3.0)]
    assert read(path, reading) == []


def test_a_file_that_became_shorter_is_refused(path: Path) -> None:
    reading = Reading()
    path.write_text('{"id": "a", "time": 1}\n')
    read(path, reading)
    path.write_text("{}\n")
    with pytest.raises(FailedPrecondition, match="clicks"):
        read(path, reading)


def test_compressed_events_are_read_from_where_reading_ended(path: Path) -> None:
    reading = Reading()
    lines = [b'{"id": "%d", "time": 1}\n' % i for i in range(3)]
    path.write_bytes(gzip.compress(b"".join(lines[:2])))
    assert len(read(path, reading)) == 2
    path.write_bytes(gzip.compress(b"".join(lines)))
    assert read(path, reading) == [FeedbackEvent("2", 0, 1.0)]


def test_lines_are_put_together_from_pieces_and_have_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_READ_BYTES", 5)
    monkeypatch.setattr(events, "_MAX_LINE_BYTES", 100)
    path.write_text('{"id": "a", "time": 1}\n{"id": "b", "time": 2}')
    assert read(path) == [FeedbackEvent("a", 0, 1.0), FeedbackEvent("b", 0, 2.0)]
    path.write_text('{"id": "' + "a" * 200 + '", "time": 1}\n')
    with pytest.raises(DataError, match="100 bytes"):
        read(path)
