"""What a run wrote down: its journal and its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticctr.ps.coordinator.journal import read_journal
from elasticctr.train.events import read_events


def done_chunks(run: Path) -> list[int]:
    """Chunks done since the last rollback, with those a checkpoint had."""
    done: list[int] = []
    for line in read_journal(run / "ledger" / "journal.jsonl")[0]:
        if line["event"] == "done":
            done.append(int(line["chunk"]))
    return done


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return read_events(run / "events.jsonl", kind)
