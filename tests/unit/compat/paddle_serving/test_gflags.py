"""gflags.conf: every way to write a flag, files that name files, and mistakes with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.compat.paddle_serving.gflags import Flag, read_gflags
from elasticctr.errors import ConfigError, NotFound


def read(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "gflags.conf").write_text(text)
    return {name: flag.value for name, flag in read_gflags(tmp_path / "gflags.conf").items()}


def test_every_way_to_write_a_flag(tmp_path: Path) -> None:
    text = "# ports\n\n--port=8010\n-threads 6\n--enable_cube\n--noenable_log\n--path = '/a b'\n--empty=\n--no\n"
    expected = {"port": "8010", "threads": "6", "enable_cube": "true", "enable_log": "false"}
    assert read(tmp_path, text) == expected | {"path": "/a b", "empty": "", "no": "true"}


def test_the_last_of_a_flag_counts_and_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gflags.conf"
    path.write_text("--port=1\n--port=2\n")
    assert read_gflags(path) == {"port": Flag("port", "2", f"{path}:2")}


def test_a_flagfile_is_read_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "shared.conf").write_text("--port=2\n--threads=3\n")
    assert read(tmp_path, "--port=1\n--flagfile=more/shared.conf\n--threads=4\n") == {"port": "2", "threads": "4"}


@pytest.mark.parametrize("text", ["--flagfile=gflags.conf", "--flagfile=", "port=1", "-- port", "\xff"])
def test_mistakes_name_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "gflags.conf").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"gflags\.conf"):
        read_gflags(tmp_path / "gflags.conf")


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.conf"):
        read(tmp_path, "--flagfile=none.conf")


@pytest.mark.parametrize(("text", "expected"), [("7", 7), ("0", None), ("-1", None), ("7.5", None), ("", None)])
def test_whole_numbers_have_a_lower_bound(text: str, expected: int | None) -> None:
    flag = Flag("port", text, "conf:3")
    if expected is not None:
        assert flag.whole(1) == expected
    else:
        with pytest.raises(ConfigError, match="conf:3: port"):
            flag.whole(1)


@pytest.mark.parametrize(("text", "expected"), [("True", True), ("y", True), ("0", False), ("No", False)])
def test_truth(text: str, expected: bool) -> None:
    assert Flag("on", text, "conf:1").truth() is expected


def test_what_is_neither_true_nor_false_is_said() -> None:
    with pytest.raises(ConfigError, match="conf:1: on"):
        Flag("on", "maybe", "conf:1").truth()
