"""The course of a run with pservers: what it counts, and what it takes over from a run in one process."""

from __future__ import annotations

import pytest

from elasticctr.data.chunks import Chunk
from elasticctr.errors import Corruption
from elasticctr.ps.coordinator.course import LedgerCourse
from elasticctr.ps.coordinator.ledger import Ledger, Report
from elasticctr.train.course import Course
from elasticctr.train.job import Job

JOB = Job.model_validate({"schema": {"slots": [{"name": "user"}]}, "data": {"train": "log"}, "train": {"epochs": 3}})


def make_ledger(epoch: int) -> Ledger:
    return Ledger([Chunk("log", "bytes", start, start + 10, epoch=epoch, number=n) for n, start in enumerate((0, 10))])


def test_an_epoch_in_one_process_and_the_next_with_pservers() -> None:
    alone, course = Course(JOB), LedgerCourse(JOB)
    alone.begin_epoch()
    for samples in (10, 10, 3):
        alone.count(samples)
    alone.end_epoch()
    course.restore_with(alone.state({}), None, None)
    assert (course.epoch, course.step, course.samples, course.epoch_samples) == (1, 3, 23, 0)
    ledger = make_ledger(1)
    course.open_ledger(ledger)
    ledger.finish(ledger.chunks[0].id, Report(2, 14))
    assert (course.step, course.samples, course.epoch_samples) == (5, 37, 14)
    assert course.state({})["data"] == {"ledger": "ledger.json"}
    ledger.finish(ledger.chunks[1].id, Report(1, 9))
    course.end_epoch()
    alone.restore(course.state({}))
    assert (alone.epoch, alone.step, alone.samples, alone.data) == (2, 6, 46, None)


def test_a_ledger_that_holds_less_than_was_reported_counts() -> None:
    course, ledger = LedgerCourse(JOB), make_ledger(0)
    course.open_ledger(ledger)
    ledger.finish(ledger.chunks[0].id, Report(2, 14))
    ledger.finish(ledger.chunks[1].id, Report(1, 9))
    state = course.state({})
    older = make_ledger(0)
    older.finish(older.chunks[0].id, Report(2, 14))
    again = LedgerCourse(JOB)
    again.restore_with(state, older, None)
    assert (again.step, again.samples, again.epoch_samples) == (2, 14, 14)


def test_a_state_that_makes_no_sense_is_corruption() -> None:
    state = LedgerCourse(JOB).state({})
    with pytest.raises(Corruption, match=r"trainer\.json"):
        LedgerCourse(JOB).restore_with({**state, "step": "many"}, None, None)
