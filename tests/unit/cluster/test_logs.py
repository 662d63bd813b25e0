"""Logs of a run are found by role and followed line by line, torn and rewritten ones too."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.cluster.logs import Follower, find_logs
from elasticctr.errors import NotFound


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    for role in ("trainer-1", "pserver-0", "trainer-0"):
        (tmp_path / "logs" / f"{role}.log").write_text("")
    (tmp_path / "logs" / "other.txt").write_text("")
    return tmp_path


def test_all_logs_or_those_of_roles_each_once(run: Path) -> None:
    assert [path.stem for path in find_logs(run, [])] == ["pserver-0", "trainer-0", "trainer-1"]
    asked = ["trainer-1", "pserver-0", "trainer-1"]
    assert [path.stem for path in find_logs(run, asked)] == ["trainer-1", "pserver-0"]


def test_a_role_without_a_log_is_named_with_those_there_are(run: Path) -> None:
    with pytest.raises(NotFound, match=r"trainer-7.*pserver-0, trainer-0, trainer-1"):
        find_logs(run, ["trainer-0", "trainer-7"])
    with pytest.raises(NotFound, match="no logs"):
        find_logs(run / "elsewhere", [])


def test_the_last_lines_come_first_then_what_is_added(tmp_path: Path) -> None:
    log = tmp_path / "trainer-0.log"
    log.write_text("one\ntwo\nthree\n")
    follower = Follower(log, 2)
    assert follower.name == "trainer-0"
    assert follower.read() == ["two", "three"] and follower.read() == []
    with log.open("ab") as file:
        file.write(b"four\n\nfive\nsi")
        file.flush()
        assert follower.read() == ["four", "", "five"]
        file.write(b"x \xff\n")
        file.flush()
        assert follower.read() == ["six \ufffd"]


def test_a_log_that_is_not_there_yet_or_begins_anew_is_read(tmp_path: Path) -> None:
    log = tmp_path / "trainer-0.log"
    follower = Follower(log, 10)
    assert follower.read() == []
    log.write_text("a long first line\n")
    assert follower.read() == ["a long first line"]
    log.write_text("anew\n")
    assert follower.read() == ["anew"]


def test_no_lines_of_the_past_are_wanted(tmp_path: Path) -> None:
    log = tmp_path / "trainer-0.log"
    log.write_text("past\n")
    follower = Follower(log, 0)
    assert follower.read() == []
    with log.open("a") as file:
        file.write("present\n")
    assert follower.read() == ["present"]
