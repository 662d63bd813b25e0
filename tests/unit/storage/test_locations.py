"""Paths, globs, directories and date trees become files in a fixed order."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, DeadlineExceeded, NotFound, Unauthorized
from elasticctr.storage import resolve


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(location: Any, root: Path, options: ReadOptions | None = None) -> list[str]:
    return [os.path.relpath(source.path, root) for source in resolve(location, options)]


def test_a_directory_is_walked_in_order_without_hidden_files_and_donefiles(tmp_path: Path) -> None:
    for name in ("b/2", "b/10", "a/x/deep", "c", ".hidden", "_SUCCESS", "b/_temporary/part", ".git/config", "donefile"):
        write(tmp_path / name)
    write(tmp_path / "b" / "to.hadoop.done")
    write(tmp_path / "a" / "READY")
    assert names(str(tmp_path), tmp_path, ReadOptions(donefile="READY")) == ["a/x/deep", "b/10", "b/2", "c"]


def test_a_directory_below_hidden_ones_is_read(tmp_path: Path) -> None:
    write(tmp_path / ".data" / "_logs" / "a")
    assert names(str(tmp_path / ".data" / "_logs"), tmp_path) == [".data/_logs/a"]


def test_globs_files_and_lists_keep_their_order(tmp_path: Path) -> None:
    for name in ("p-2", "p-1", "q", "d/p-3"):
        write(tmp_path / name)
    assert names(str(tmp_path / "p-*"), tmp_path) == ["p-1", "p-2"]
    assert names([str(tmp_path / "q"), str(tmp_path / "p-*")], tmp_path) == ["q", "p-1", "p-2"]
    assert names(str(tmp_path / "**" / "p-*"), tmp_path) == ["d/p-3", "p-1", "p-2"]
    assert names(str(tmp_path / "[d]"), tmp_path) == ["d/p-3"]
    assert names(f"file://{tmp_path}/q", tmp_path) == ["q"]


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    write(tmp_path / "log[1]")
    assert names(str(tmp_path / "log[1]"), tmp_path) == ["log[1]"]


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"nothing\.txt: no such file"):
        resolve(str(tmp_path / "nothing.txt"))
    with pytest.raises(NotFound, match="empty: a directory without sample files"):
        resolve(str(tmp_path / "empty"))
    with pytest.raises(NotFound, match=r"part-\*: no file matches"):
        resolve(str(tmp_path / "part-*"))
    with pytest.raises(ConfigError, match="list of paths is empty"):
        resolve([])
    with pytest.raises(ConfigError, match="unknown protocol gopher"):
        resolve("gopher://host/log")


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may read everything: while this test runs, root is nobody."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield
    if is_root:
        os.seteuid(0)


def test_a_file_that_may_not_be_read(nobody: None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        secret = write(Path(folder) / "secret")
        secret.chmod(0)
        with pytest.raises(Unauthorized, match="secret"):
            resolve(str(secret))[0].open()


def hours(root: Path, *parts: str) -> None:
    for part in parts:
        write(root / part / "part-0")
        write(root / part / "donefile", "")


def test_a_tree_of_hours_crosses_midnight(tmp_path: Path) -> None:
    hours(tmp_path, "20200401/22", "20200401/23", "20200402/00", "20200402/01")
    options = ReadOptions(start="20200401/23", end="20200402/00", donefile="donefile")
    expected = ["20200401/23/part-0", "20200402/00/part-0"]
    assert names(f"{tmp_path}/{{date}}/{{hour}}", tmp_path, options) == expected
    assert names(f"{tmp_path}/{{date}}/{{hour}}/part-*", tmp_path, options) == expected


def test_a_tree_of_days_and_other_spellings(tmp_path: Path) -> None:
    for day in ("2020-02-28", "2020-02-29", "2020-03-01"):
        write(tmp_path / day / "log")
    options = ReadOptions(start="20200228", end="20200301")
    assert len(names(f"{tmp_path}/{{date:%Y-%m-%d}}", tmp_path, options)) == 3
    write(tmp_path / "log.20200401")
    assert names(f"{tmp_path}/log.{{date}}", tmp_path, ReadOptions(start="20200401", end="20200401")) == [
        "log.20200401"
    ]


def test_an_end_without_an_hour_is_the_whole_day(tmp_path: Path) -> None:
    hours(tmp_path, *(f"20200401/{hour:02}" for hour in range(24)))
    options = ReadOptions(start="20200401", end="20200401")
    assert len(names(f"{tmp_path}/{{date}}/{{hour}}", tmp_path, options)) == 24


def test_an_hour_that_is_not_finished_is_never_passed_over(tmp_path: Path) -> None:
    hours(tmp_path, "20200401/00", "20200401/01", "20200401/02")
    (tmp_path / "20200401/01/donefile").unlink()
    location = f"{tmp_path}/{{date}}/{{hour}}"
    options = ReadOptions(start="20200401/00", end="20200401/02", donefile="donefile")
    with pytest.raises(NotFound, match="20200401/01/donefile: not found"):
        resolve(location, options)
    with pytest.raises(DeadlineExceeded, match="20200401/01/donefile"):
        resolve(location, options.model_copy(update={"wait_s": 0.05}))
    with pytest.raises(NotFound, match="20200401/03"):
        resolve(location, ReadOptions(start="20200401/00", end="20200401/03"))


def test_a_donefile_is_waited_for(tmp_path: Path) -> None:
    hours(tmp_path, "20200401/00")
    (tmp_path / "20200401/00/donefile").unlink()
    timer = threading.Timer(0.2, lambda: write(tmp_path / "20200401/00/donefile"))
    timer.start()
    began = time.monotonic()
    options = ReadOptions(start="20200401/00", end="20200401/00", donefile="donefile", wait_s=100)
    assert len(resolve(f"{tmp_path}/{{date}}/{{hour}}", options)) == 1
    assert time.monotonic() - began < 60
    timer.join()


@pytest.mark.parametrize(
    ("location", "start", "end", "message"),
    [
        ("l/{date}", "20200402", "20200401", "before start"),
        ("l/{date}", "20201301", "20201301", "not a day"),
        ("l/{date}", "20200401/00", "20200401/01", "no {hour}"),
        ("l/{date}/{hour}", "20200401/24", "20200402", "not a day or an hour"),
        ("l/{hour}", "20200401/00", "20200402", "needs {date}"),
        ("l/{date}", None, None, "needs start and end"),
        ("l/plain", "20200401", "20200401", "date trees"),
    ],
)
def test_mistakes_in_date_trees(location: str, start: str | None, end: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(location, ReadOptions(start=start, end=end))
