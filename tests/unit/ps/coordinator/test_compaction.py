"""Journals that are shortened: the coordinator that takes over finds what it would have found in the long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.errors import FailedPrecondition
from elasticctr.ps.coordinator.compaction import compact
from elasticctr.ps.coordinator.journal import LedgerJournal, Line, read_journal


def member(number: int, role: str = "trainer") -> dict[str, Any]:
    return {"id": number, "role": role, "name": f"{role}-{number}", "phase": "joined"}


def write_long(path: Path) -> LedgerJournal:
    journal, _ = LedgerJournal.take_over(path)
    journal.append("begin", {"incarnation": 1, "identity": "d"})
    journal.append("join", {"member": member(1, "pserver")})
    journal.append("start", {"era": 1, "path": None, "state": "state-1-1.json"})
    journal.append("loaded", {"era": 1, "ids": [1]})
    for number in range(2, 300):
        journal.append("join", {"member": member(number)})
        journal.append("lease", {"chunk": str(number), "id": number, "lease": number})
        journal.append("done", {"chunk": str(number), "id": number, "batches": 1, "samples": 1, "lines": 1, "bad": 0})
        journal.append("gone", {"id": number, "phase": "lost", "reason": "silent"})
    journal.append("back", {"id": 7, "phase": "joined"})
    journal.append("rollback", {"era": 2, "path": "checkpoints/1", "state": "state-1-2.json"})
    journal.append("loaded", {"era": 2, "ids": [1]})
    journal.append("lease", {"chunk": "301", "id": 7, "lease": 301})
    return journal


def told(lines: list[Line]) -> list[str]:
    return [line["event"] for line in lines]


@pytest.mark.promise(
    "a run of many days: millions of leases and former members",
    "the coordinator's journal and members stay bounded, and a successor continues from the shortened journal",
)
def test_a_shortened_journal_holds_what_a_successor_needs(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write_long(path)
    before = journal.size
    journal.shorten(compact)
    assert journal.size < before / 20
    journal.append("done", {"chunk": "301", "id": 7, "batches": 1, "samples": 1, "lines": 1, "bad": 0})
    lines, data = read_journal(path)  # its checksums are whole
    assert len(data) == journal.size
    assert told(lines) == [
        *("begin", "join", "start", "loaded", "join", "gone", "back"),
        *("rollback", "loaded", "lease", "done"),
    ]
    assert [line["member"]["id"] for line in lines if line["event"] == "join"] == [1, 7]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    again, found = LedgerJournal.take_over(path)
    assert found == lines
    with pytest.raises(FailedPrecondition, match="taken this run over"):
        journal.shorten(compact)
    again.close()
    journal.close()
