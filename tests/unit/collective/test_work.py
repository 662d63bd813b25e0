"""The deal of chunks: alike on every rank, complete, and anew after a restart."""

from __future__ import annotations

import json

import pytest

from elasticctr.collective.work import ChunkBatch, ChunkNote, EpochLedger, deal
from elasticctr.data.chunks import Chunk
from elasticctr.data.pipeline import Stats
from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.ps.coordinator.job_checkpoint import describe_ledger
from elasticctr.ps.coordinator.ledger import Ledger

CHUNKS = [Chunk(f"part-{n}", "file", date=f"2026010{1 + n // 5}", number=n) for n in range(9)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_every_chunk_is_dealt_once_and_dates_keep_their_order(ranks: int) -> None:
    dealt = [deal(CHUNKS, EpochLedger(), rank, ranks) for rank in range(ranks)]
    assert all(len(rounds) == 2 for rounds in dealt)
    for number, date in enumerate(("20260101", "20260102")):
        chunks = [chunk for rounds in dealt for chunk, first in rounds[number]]
        assert sorted(c.number for c in chunks) == [c.number for c in CHUNKS if c.date == date]
    sizes = [sum(len(chosen) for chosen in rounds) for rounds in dealt]
    assert max(sizes) - min(sizes) <= 2


def test_what_is_done_is_not_dealt_and_what_is_begun_goes_on() -> None:
    ledger = EpochLedger(0, {n: ChunkNote(4, 64, is_done=True) for n in range(6)} | {6: ChunkNote(3, 48)})
    assert deal(CHUNKS, ledger, 0, 2) == [[(CHUNKS[6], 3), (CHUNKS[8], 0)]]
    assert deal(CHUNKS, ledger, 1, 2) == [[(CHUNKS[7], 0)]]


def test_ledgers_of_ranks_join_to_one() -> None:
    begun = EpochLedger(1, {0: ChunkNote(2, 32), 1: ChunkNote(5, 80, True, 80, 1)}, ("a:1: x",))
    mine = EpochLedger.restore(begun.state(CHUNKS), CHUNKS)
    theirs = EpochLedger.restore(json.loads(json.dumps(begun.state(CHUNKS))), CHUNKS)
    mine.take(ChunkBatch(Chunk("p", "file", epoch=1), 2, None, True, Stats(40, 32, 8, ("b:9: y",))))
    theirs.notes[7] = ChunkNote(1, 16)
    joined = begun.join([mine, theirs])
    assert joined.notes[0] == ChunkNote(2, 32, True, 40, 8)
    assert joined.stats == Stats(lines=120, samples=128, bad=9, examples=("a:1: x", "b:9: y"))
    assert EpochLedger.restore(joined.state(CHUNKS), CHUNKS) == joined


def test_the_coordinator_reads_the_same_ledger() -> None:
    """So that runs can go over from one strategy to another."""
    ours = EpochLedger(0, {0: ChunkNote(5, 80, True, 81, 1), 3: ChunkNote(2, 32)})
    theirs = Ledger.restore(CHUNKS, ours.state(CHUNKS))
    totals = theirs.totals()
    assert (totals.done, totals.batches, totals.samples, totals.lines, totals.bad) == (1, 7, 112, 81, 1)
    assert EpochLedger.restore(describe_ledger(theirs), CHUNKS) == ours


@pytest.mark.parametrize("change", [{"done": [[1, "x", 2, 3, 4]]}, {"begun": [[1]]}, {"epoch": None}])
def test_a_ledger_that_is_none_is_refused(change: dict[str, object]) -> None:
    state = EpochLedger(0, {3: ChunkNote(2, 32)}).state(CHUNKS)
    with pytest.raises(Corruption):
        EpochLedger.restore(state | change, CHUNKS)


def test_a_ledger_of_other_chunks_is_refused() -> None:
    state = EpochLedger(0, {3: ChunkNote(2, 32)}).state(CHUNKS)
    with pytest.raises(FailedPrecondition, match="other chunks"):
        EpochLedger.restore(state, CHUNKS[:-1])
