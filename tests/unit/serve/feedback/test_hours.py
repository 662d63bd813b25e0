"""Samples go to the file of their hour; all files appear with the commit, or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticctr.serve.feedback import hours
from elasticctr.serve.feedback.hours import HourFiles, hour_of

HOUR = 1_794_000_000.0 // 3600 * 3600


def files_of(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_hours_are_of_utc() -> None:
    assert hour_of(0) == "19700101/00" and hour_of(3599.9) == "19700101/00" and hour_of(3600) == "19700101/01"


def test_lines_keep_their_order_within_their_hour(tmp_path: Path) -> None:
    with HourFiles(tmp_path, "part-1.txt", None) as files:
        for i in range(6):
            files.write(HOUR + 3600 * (i % 2), b"%d\n" % i)
        assert files_of(tmp_path) == {}
        files.commit()
    first, second = hour_of(HOUR), hour_of(HOUR + 3600)
    assert files_of(tmp_path) == {f"{first}/part-1.txt": b"0\n2\n4\n", f"{second}/part-1.txt": b"1\n3\n5\n"}
    assert files.hours == {first, second} and sorted(files.written) == sorted(files_of(tmp_path))


def test_late_clicks_have_a_file_of_their_own_or_none(tmp_path: Path) -> None:
    for late in (None, "late/part-1.jsonl"):
        with HourFiles(tmp_path, "part-1.txt", late) as files:
            files.write_late({"id": "a"})
            files.commit()
        assert files.hours == set()
    assert [json.loads(text) for text in files_of(tmp_path)["late/part-1.jsonl"].splitlines()] == [{"id": "a"}]


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 1])
def test_without_a_commit_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int) -> None:
    monkeypatch.setattr(hours, "_BUFFER_BYTES", buffer_bytes)
    with pytest.raises(KeyboardInterrupt), HourFiles(tmp_path, "part-1.txt", "late") as files:
        files.write(HOUR, b"a\n")
        files.write_late({})
        raise KeyboardInterrupt
    assert files_of(tmp_path) == {}


def test_what_a_killed_run_left_is_not_part_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "_BUFFER_BYTES", 1)
    killed = HourFiles(tmp_path, "part-1.txt", None)
    killed.write(HOUR, b"of the killed one\n")
    assert files_of(tmp_path)
    with HourFiles(tmp_path, "part-1.txt", None) as files:
        files.write(HOUR, b"a\n")
        files.write(HOUR, b"b\n")
        files.commit()
    assert files_of(tmp_path) == {f"{hour_of(HOUR)}/part-1.txt": b"a\nb\n"}
