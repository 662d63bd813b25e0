"""A time stamp file that changes is noticed once, even when clocks go backwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticctr.serve.activation.reload_stamp import ReloadStamp, ReloadType

S = 1_000_000_000


def touch(path: Path, time_ns: int, text: str = "") -> None:
    path.write_text(text)
    os.utime(path, ns=(time_ns, time_ns))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fluid_time_file"
    touch(path, 1000 * S, "1")
    return path


@pytest.mark.parametrize("kind", ["timestamp_ne", "timestamp_gt", "md5sum", "revision", "none"])
def test_the_first_call_reports_no_change(file: Path, kind: ReloadType) -> None:
    stamp = ReloadStamp(file, kind)
    assert not stamp.changed()
    assert not stamp.changed()


def test_another_time_is_a_change_once(file: Path) -> None:
    stamp = ReloadStamp(file, "timestamp_ne")
    stamp.changed()
    touch(file, 1001 * S)
    assert stamp.changed()
    assert not stamp.changed()


def test_a_clock_that_goes_backwards(file: Path) -> None:
    differs, grows = ReloadStamp(file, "timestamp_ne"), ReloadStamp(file, "timestamp_gt")
    assert not differs.changed()
    assert not grows.changed()
    touch(file, 900 * S)
    assert differs.changed()
    assert not grows.changed()
    touch(file, 950 * S)  # later than before, but not later than the latest
    assert differs.changed()
    assert not grows.changed()
    touch(file, 1000 * S + 1)
    assert grows.changed()


def test_a_missing_file_has_not_changed_and_comes_back(file: Path) -> None:
    stamp = ReloadStamp(file, "timestamp_ne")
    stamp.changed()
    file.unlink()
    assert not stamp.changed()
    touch(file, 1000 * S)
    assert not stamp.changed()  # the same time as before
    file.unlink()
    touch(file, 1002 * S)
    assert stamp.changed()


def test_a_file_that_was_never_there(tmp_path: Path) -> None:
    stamp = ReloadStamp(tmp_path / "later", "timestamp_ne")
    assert not stamp.changed()
    touch(tmp_path / "later", 5 * S)
    assert not stamp.changed()
    touch(tmp_path / "later", 6 * S)
    assert stamp.changed()


@pytest.mark.parametrize("kind", ["timestamp_ne", "timestamp_gt", "md5sum", "revision"])
def test_replaced_by_rename(file: Path, kind: ReloadType) -> None:
    stamp = ReloadStamp(file, kind)
    stamp.changed()
    new = file.with_suffix(".new")
    touch(new, 1005 * S, "2")
    new.rename(file)
    assert stamp.changed()
    assert not stamp.changed()


def test_md5sum_looks_at_bytes_not_at_time(file: Path) -> None:
    stamp = ReloadStamp(file, "md5sum")
    stamp.changed()
    touch(file, 1001 * S, "1")
    assert not stamp.changed()
    touch(file, 900 * S, "other")
    assert stamp.changed()


def test_revision_is_a_number_that_grows(file: Path) -> None:
    stamp = ReloadStamp(file, "revision")
    stamp.changed()
    for time, text, is_change in [(2, "0", False), (3, "abc", False), (4, "2\n", True), (5, "10 note", True)]:
        touch(file, time * S, text)
        assert stamp.changed() == is_change, text
    touch(file, 6 * S, "9")
    assert not stamp.changed()


def test_none_never_changes(file: Path) -> None:
    stamp = ReloadStamp(file, "none")
    stamp.changed()
    touch(file, 2000 * S, "2")
    assert not stamp.changed()


def test_what_was_seen_is_kept_across_restarts(file: Path) -> None:
    stamp = ReloadStamp(file, "timestamp_gt")
    stamp.changed()
    touch(file, 1001 * S)
    restarted = ReloadStamp(file, "timestamp_gt", last=stamp.last)
    assert restarted.changed()
    assert not ReloadStamp(file, "md5sum", last=stamp.last).changed()  # another kind starts anew


def test_a_directory_in_its_place_does_no_harm(tmp_path: Path) -> None:
    assert not ReloadStamp(tmp_path, "md5sum").changed()
