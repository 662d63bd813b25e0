"""The ledger of one pass over chunks: which are to do, leased or done, and how far each is.

A state machine without clocks, files or threads. A chunk is leased in the order of its number; those of a later date
wait until every chunk of the dates before is done. What is done stays done; whatever happens to leases, every chunk is
done exactly once. Training epochs and evaluations are one pass each.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from elasticctr.data.chunks import Chunk
from elasticctr.errors import Corruption

State = Literal["todo", "leased", "done"]


@dataclass(slots=True)
class LedgerEntry:
    chunk: Chunk
    state: State = "todo"
    holder: int | None = None
    lease: int = 0  # number of the newest lease; a report of an older one does not count
    batches: int = 0  # applied as far as reported
    samples: int = 0
    lines: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A trainer's report on a chunk. Batches and samples are counted from its beginning."""

    batches: int
    samples: int
    lines: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    chunks: int
    todo: int
    leased: int
    done: int
    batches: int
    samples: int
    lines: int
    bad: int


class Ledger:
    def __init__(self, chunks: Sequence[Chunk]) -> None:
        """REQUIRES: numbered 0, 1, … in one epoch."""
        self.epoch = chunks[0].epoch if chunks else 0
        self._entries = [LedgerEntry(chunk) for chunk in chunks]
        self._todo = list(range(len(chunks)))
        self._leases = 0
        self._held: dict[int, set[int]] = {}  # by holder
        self._dates: list[int] = []  # of each chunk: which date, counted
        self._left: list[int] = []  # of each date: chunks not done
        self._open_date = 0
        self._batches = self._samples = self._lines = self._bad = self._done = 0
        for previous, chunk in zip([None, *chunks], chunks, strict=False):
            if previous is None or previous.date != chunk.date:
                self._left.append(0)
            self._dates.append(len(self._left) - 1)
            self._left[-1] += 1

    def lease(self, holder: int, have: Collection[int] = (), *, idle: int = 0) -> LedgerEntry | None:
        """The next chunk for `holder`, which says it has the chunks `have` (by id); None if it has to wait.

        A chunk that the ledger thinks it holds and it does not name (an answer that got lost) is given again. A holder
        that has work already leaves the last chunks to the `idle` others.
        """
        for number in sorted(self._held.get(holder, ())):
            entry = self._entries[number]
            if entry.chunk.id not in have:
                return entry
        if have and len(self._todo) <= idle:
            return None
        if not self._todo or self._dates[self._todo[0]] != self._open_date:
            return None
        number = heapq.heappop(self._todo)
        self._note(number, holder, self._leases + 1)
        return self._entries[number]

    def take(self, chunk_id: int, holder: int, lease: int) -> None:
        """Notes a lease when a journal is read. REQUIRES: the chunk is not done."""
        entry = self.find(chunk_id)
        assert entry is not None and entry.state != "done"
        if entry.holder is not None:
            self._held[entry.holder].discard(entry.chunk.number)
        else:
            self._todo.remove(entry.chunk.number)
            heapq.heapify(self._todo)
        self._note(entry.chunk.number, holder, lease)

    def _note(self, number: int, holder: int, lease: int) -> None:
        entry = self._entries[number]
        self._leases = max(self._leases, lease)
        entry.state, entry.holder, entry.lease = "leased", holder, lease
        self._held.setdefault(holder, set()).add(number)

    def find(self, chunk_id: int) -> LedgerEntry | None:
        number = chunk_id & 0xFFFFFFFF
        if chunk_id >> 32 != self.epoch or number >= len(self._entries):
            return None
        return self._entries[number]

    def is_held(self, chunk_id: int, holder: int, lease: int | None = None) -> bool:
        entry = self.find(chunk_id)
        if entry is None or entry.state != "leased" or entry.holder != holder:
            return False
        return lease is None or lease == entry.lease

    def progress(self, chunk_id: int, report: Report) -> None:
        """How far a chunk is. REQUIRES: it is leased."""
        entry = self.find(chunk_id)
        assert entry is not None
        if report.batches > entry.batches:
            self._count(entry, Report(report.batches, max(report.samples, entry.samples), entry.lines, entry.bad))

    def finish(self, chunk_id: int, report: Report) -> None:
        """All of the chunk is applied on every pserver. REQUIRES: it is not done."""
        entry = self.find(chunk_id)
        assert entry is not None and entry.state != "done"
        number = entry.chunk.number
        if entry.state == "todo":
            self._todo.remove(number)
            heapq.heapify(self._todo)
        if entry.holder is not None:
            self._held[entry.holder].discard(number)
        self._count(entry, report)
        entry.state, entry.holder = "done", None
        self._done += 1
        self._left[self._dates[number]] -= 1
        while self._open_date < len(self._left) and self._left[self._open_date] == 0:
            self._open_date += 1

    def lose(self, holder: int, chunk_id: int | None = None) -> list[int]:
        """Takes back what `holder` has, or one chunk of it; returns their ids."""
        lost = []
        for number in sorted(self._held.get(holder, set())):
            entry = self._entries[number]
            if chunk_id is None or entry.chunk.id == chunk_id:
                self._held[holder].discard(number)
                entry.state, entry.holder = "todo", None
                heapq.heappush(self._todo, number)
                lost.append(entry.chunk.id)
        return lost

    def held_by(self, holder: int) -> list[int]:
        return [self._entries[number].chunk.id for number in sorted(self._held.get(holder, ()))]

    def holders(self) -> set[int]:
        return {holder for holder, held in self._held.items() if held}

    @property
    def is_done(self) -> bool:
        return self._done == len(self._entries)

    @property
    def chunks(self) -> list[Chunk]:
        return [entry.chunk for entry in self._entries]

    def totals(self) -> Totals:
        leased = sum(len(held) for held in self._held.values())
        counts = (len(self._entries), len(self._todo), leased, self._done)
        return Totals(*counts, self._batches, self._samples, self._lines, self._bad)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what is done, and how far the rest is as far as reported. Leases are not kept."""
        done = [[e.chunk.number, e.batches, e.samples, e.lines, e.bad] for e in self._entries if e.state == "done"]
        begun = [[e.chunk.number, e.batches, e.samples] for e in self._entries if e.state != "done" and e.batches]
        return {"epoch": self.epoch, "chunks": len(self._entries), "done": done, "begun": begun}

    @classmethod
    def restore(
        cls,
        chunks: Sequence[Chunk],
        state: Mapping[str, Any],
        cursors: Mapping[int, int] | None = None,
        batch_size: int = 1,
    ) -> Ledger:
        """As it was. With `cursors` (by chunk id) these say how far the chunks not done are. Raises Corruption."""
        ledger = cls(chunks)
        try:
            if state["epoch"] != ledger.epoch or state["chunks"] != len(chunks):
                raise Corruption(
                    f"a ledger of {state['chunks']} chunks in epoch {state['epoch']}, its plan has {len(chunks)} in "
                    f"epoch {ledger.epoch}; take an older checkpoint"
                )
            for number, *counts in state["done"]:
                ledger.finish(ledger._entries[number].chunk.id, Report(*counts))
            begun: Iterable[Sequence[int]] = state["begun"]
            if cursors is not None:
                begun = [
                    (e.chunk.number, cursors[e.chunk.id], cursors[e.chunk.id] * batch_size)
                    for e in ledger._entries
                    if e.state != "done" and cursors.get(e.chunk.id)
                ]
            for number, batches, samples in begun:
                ledger._count(ledger._entries[number], Report(batches, samples))
        except (KeyError, TypeError, ValueError, IndexError, AssertionError) as e:
            raise Corruption(
                f"a ledger that makes no sense: {type(e).__name__}: {e}; take an older checkpoint"
            ) from None
        return ledger

    def _count(self, entry: LedgerEntry, report: Report) -> None:
        self._batches += report.batches - entry.batches
        self._samples += report.samples - entry.samples
        self._lines += report.lines - entry.lines
        self._bad += report.bad - entry.bad
        entry.batches, entry.samples = report.batches, report.samples
        entry.lines, entry.bad = report.lines, report.bad
