"""Shortens a journal to what is still needed: in many days a run has millions of leases, and many members leave."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from elasticctr.errors import Unavailable
from elasticctr.ps.coordinator.claim import Claim
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.journal import Line
from elasticctr.storage.atomic import DiskFull

_LONG = 8 << 20  # bytes

_OF_CHUNKS = ("lease", "done", "lost")
_OF_A_MEMBER = ("gone", "back", "promote", "appoint")
# The newest of each counts.
_OF_THE_RUN = ("begin", "checkpoint", "epoch", "course", "start", "rollback", "best", "end")


def shorten(at: Coordinator, claim: Claim) -> None:
    """Call after a whole state was kept: earlier lines about chunks are no longer needed then."""
    claim.check()
    with at.lock, suppress(Unavailable, DiskFull):
        if at.journal.size > _LONG:
            at.journal.shorten(compact)


def compact(lines: Sequence[Line]) -> list[Line]:
    """The lines that a coordinator that takes over would miss, in their order.

    Chunks matter since the newest state that was kept whole; members as long as they take part.
    """
    kept = max((n for n, line in enumerate(lines) if line.get("state")), default=-1)
    newest = {line["event"]: n for n, line in enumerate(lines)}
    is_there: dict[int, bool] = {}
    for line in lines:
        if line["event"] == "join":
            is_there[line["member"]["id"]] = True
        elif line["event"] in ("gone", "back"):
            is_there[line["id"]] = line["event"] == "back"
    there = {member for member, is_so in is_there.items() if is_so}

    def is_wanted(n: int, line: Line) -> bool:
        event = line["event"]
        if event == "join":
            return line["member"]["id"] in there
        if event in _OF_A_MEMBER:
            return line["id"] in there or (event == "gone" and n > kept)
        if event in _OF_CHUNKS:
            return n > kept
        return n >= kept or event not in _OF_THE_RUN or n == newest[event]

    wanted = [line for n, line in enumerate(lines) if is_wanted(n, line)]
    return [
        {**line, "ids": [member for member in line["ids"] if member in there]} if line["event"] == "loaded" else line
        for line in wanted
        if line["event"] != "loaded" or there & set(line["ids"])
    ]
