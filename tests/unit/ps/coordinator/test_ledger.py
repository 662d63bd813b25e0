"""Whatever happens to leases, every chunk is done once, in the order of dates."""

from __future__ import annotations

import random
from typing import Any

import pytest

from elasticctr.data.chunks import Chunk
from elasticctr.errors import Corruption
from elasticctr.ps.coordinator.ledger import Ledger, Report


def make_chunks(count: int, dates: int = 1, epoch: int = 0) -> list[Chunk]:
    return [
        Chunk(f"part-{n}", "file", date=f"202004{1 + n * dates // count:02d}", epoch=epoch, number=n)
        for n in range(count)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_every_chunk_is_done_once_and_dates_in_order(seed: int) -> None:
    """Trainers lease, report, die, wake up again and report too late, in any order."""
    random_ = random.Random(seed)
    chunks = make_chunks(random_.choice([1, 7, 40]), random_.choice([1, 3]), epoch=2)
    sizes = {chunk.id: (random_.randrange(0, 9), random_.randrange(0, 900)) for chunk in chunks}
    ledger = Ledger(chunks)
    trainers = list(range(1, 5))
    believed: dict[int, set[int]] = {t: set() for t in trainers}  # what each thinks it holds
    finished: list[int] = []
    for _ in range(20_000):
        if ledger.is_done:
            break
        trainer = random_.choice(trainers)
        action = random_.random()
        if action < 0.4:
            have = set() if random_.random() < 0.1 else believed[trainer]
            entry = ledger.lease(trainer, have, idle=random_.choice([0, 2]))
            if entry is not None:
                assert entry.state == "leased" and entry.holder == trainer
                open_dates: set[Any] = {c.date for c in chunks if c.id not in finished}
                assert entry.chunk.date == min(open_dates)
                believed[trainer] = {*have, entry.chunk.id}
        elif action < 0.6 and believed[trainer]:
            chunk = random_.choice(sorted(believed[trainer]))
            if ledger.is_held(chunk, trainer):
                ledger.progress(chunk, Report(random_.randrange(sizes[chunk][0] + 1), 3))
        elif action < 0.8 and believed[trainer]:
            chunk = random_.choice(sorted(believed[trainer]))
            if ledger.is_held(chunk, trainer):
                ledger.finish(chunk, Report(*sizes[chunk], lines=1, bad=1))
                finished.append(chunk)
            believed[trainer].discard(chunk)
        elif action < 0.85:
            lost = ledger.lose(trainer)
            assert not set(lost) & set(finished)
            if random_.random() < 0.5:
                believed[trainer] = set()
        elif action < 0.9:  # a new coordinator goes on from what a checkpoint or the journal holds
            ledger = Ledger.restore(chunks, ledger.state())
    assert sorted(finished) == [chunk.id for chunk in chunks]
    totals = ledger.totals()
    assert (totals.batches, totals.samples) == tuple(map(sum, zip(*sizes.values(), strict=True)))
    assert (totals.lines, totals.bad, totals.todo, totals.leased) == (len(chunks), len(chunks), 0, 0)


def test_a_lease_whose_answer_got_lost_is_given_again() -> None:
    ledger = Ledger(make_chunks(3))
    first = ledger.lease(1)
    assert first is not None and ledger.lease(1) is first
    second = ledger.lease(1, {first.chunk.id})
    assert second is not None and second.chunk.number == 1
    assert ledger.held_by(1) == [0, 1] and ledger.holders() == {1}


def test_the_last_chunks_are_left_to_those_without_work() -> None:
    ledger = Ledger(make_chunks(3))
    mine = ledger.lease(1)
    assert mine is not None
    assert ledger.lease(1, {mine.chunk.id}, idle=2) is None
    assert ledger.lease(1, {mine.chunk.id}, idle=1) is not None
    assert ledger.lease(2, idle=2) is not None


def test_a_report_of_an_older_lease_does_not_count() -> None:
    ledger = Ledger(make_chunks(1))
    first = ledger.lease(1)
    assert first is not None
    old = first.lease
    ledger.lose(1)
    ledger.lease(1)
    assert ledger.is_held(0, 1) and not ledger.is_held(0, 1, old)


def test_progress_follows_the_cursors_after_a_rollback() -> None:
    chunks = make_chunks(4)
    ledger = Ledger(chunks)
    for number in range(3):
        ledger.lease(number + 1)
    ledger.finish(chunks[0].id, Report(5, 50, 60, 10))
    ledger.progress(chunks[1].id, Report(4, 40))
    ledger.progress(chunks[2].id, Report(2, 20))
    back = Ledger.restore(chunks, ledger.state(), {chunks[0].id: 1, chunks[1].id: 3}, batch_size=10)
    totals = back.totals()
    assert (totals.done, totals.todo, totals.leased, totals.batches, totals.samples) == (1, 3, 0, 8, 80)
    assert [e.batches for e in (back.find(c.id) for c in chunks) if e] == [5, 3, 0, 0]


def test_a_state_that_does_not_fit_its_plan_is_corrupt() -> None:
    state = Ledger(make_chunks(4)).state()
    for wrong in (
        {**state, "chunks": 5},
        {**state, "epoch": 1},
        {**state, "done": [[9, 1, 1, 1, 1]]},
        {**state, "done": [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]},
        {},
        {**state, "begun": [["x"]]},
    ):
        with pytest.raises(Corruption):
            Ledger.restore(make_chunks(4), wrong)
