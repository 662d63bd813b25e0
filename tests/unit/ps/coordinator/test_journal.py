"""The journal survives takeovers, torn lines and damage; a superseded writer cannot append."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.ps.coordinator.journal import LedgerJournal, read_journal


def write_some(path: Path, count: int) -> None:
    journal, lines = LedgerJournal.take_over(path)
    for n in range(count):
        journal.append("lease", {"chunk": str(n), "first": len(lines)})
    journal.close()


def test_lines_come_back_across_takeovers(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for _ in range(3):
        write_some(path, 4)
    lines, _ = read_journal(path)
    assert [line["n"] for line in lines] == list(range(1, 13))
    assert [line["first"] for line in lines] == [0] * 4 + [4] * 4 + [8] * 4


def test_a_torn_last_line_is_cut_off_wherever_it_tore(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_some(path, 5)
    data = path.read_bytes()
    last = data.rfind(b"\n", 0, -1) + 1
    for size in range(last + 1, len(data)):
        path.write_bytes(data[:size])
        journal, lines = LedgerJournal.take_over(path)
        assert len(lines) == 4
        journal.append("done", {"chunk": "x"})
        journal.close()
        assert [line["event"] for line in read_journal(path)[0]] == ["lease"] * 4 + ["done"]


def test_damage_before_the_last_line_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_some(path, 30)
    data = bytearray(path.read_bytes())
    random_ = random.Random(3)
    last = data.rfind(b"\n", 0, -1)
    for _ in range(200):
        at = random_.randrange(last - 1)
        flipped = bytearray(data)
        flipped[at] ^= 1 << random_.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(Corruption):
            read_journal(path)
    lines = data.split(b"\n")
    path.write_bytes(b"\n".join(lines[:3] + lines[4:]))
    with pytest.raises(Corruption):
        read_journal(path)


def test_a_predecessor_that_wakes_up_cannot_append(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    old, _ = LedgerJournal.take_over(path)
    old.append("begin", {})
    new, lines = LedgerJournal.take_over(path)
    assert len(lines) == 1
    with pytest.raises(FailedPrecondition, match="another coordinator"):
        old.append("lease", {})
    new.append("lease", {})
    assert [line["event"] for line in read_journal(path)[0]] == ["begin", "lease"]
