"""The stream of work: order, cursors, leases one ahead, lost leases, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticctr.data.chunks import Chunk
from elasticctr.errors import ConfigError, DataError
from elasticctr.ps.trainer.leases import ChunkEnd, End, Event, LeasedBatch, NoWork, WorkSource, WorkStream
from elasticctr.train.job import Job

LINES = 100
BATCH = 16


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"click:{i % 2} user:{i}\n" for i in range(LINES)))
    return path


def make_job(log: Path, **data: Any) -> Job:
    return Job.model_validate(
        {
            "schema": {"slots": [{"name": "user"}]},
            "data": {"train": str(log), **data},
            "train": {"batch_size": BATCH, "eval_batch_size": 60},
        }
    )


def make_answer(log: Path, number: int, kind: str = "train", split: str | None = None) -> dict[str, Any]:
    chunk = Chunk(str(log), "file", number=number, epoch=1 << 24 if kind == "evaluate" else 0)
    return {"kind": kind, "chunk": chunk.as_dict(), "split": split}


class Script:
    """A coordinator's answers to leases, one after the other, and what it was asked."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.have: list[list[str]] = []

    def lease(self, have: list[str]) -> dict[str, Any]:
        self.have.append(have)
        return self._answers.pop(0) if self._answers else {"kind": "end"}


def make_source(job: Job, script: Script, cursors: Callable[[int], list[int]] = lambda chunk: [0, 0]) -> WorkSource:
    return WorkSource(job, script.lease, cursors, lambda batch: ())


def read_all(stream: WorkStream) -> list[Event]:
    events: list[Event] = []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        event = stream.get(0.1)
        if event is not None:
            events.append(event)
        if isinstance(event, End):
            return events
    raise AssertionError(f"no end after {events}")


def test_batches_come_in_order_and_every_chunk_ends(log: Path) -> None:
    script = Script(make_answer(log, 0), make_answer(log, 1))
    with WorkStream(make_source(make_job(log), script)) as stream:
        events = read_all(stream)
    works = [e for e in events if isinstance(e, LeasedBatch)]
    assert [(w.lease.id, w.batch) for w in works] == [(c, b) for c in (0, 1) for b in range(7)]
    assert [len(w.item.batch) for w in works] == [16] * 6 + [4] + [16] * 6 + [4]
    ends = [e for e in events if isinstance(e, ChunkEnd)]
    assert [(e.lease.id, e.batches, e.stats.samples, e.stats.bad) for e in ends] == [(0, 7, LINES, 0), (1, 7, LINES, 0)]
    # Nothing was reported done, so everything is still held.
    assert script.have == [[], ["0"], ["0", "1"]]


def test_a_chunk_starts_at_the_smallest_cursor(log: Path) -> None:
    with WorkStream(make_source(make_job(log), Script(make_answer(log, 3)), lambda chunk: [5, 2, 9])) as stream:
        events = read_all(stream)
    works = [e for e in events if isinstance(e, LeasedBatch)]
    assert [w.batch for w in works] == [2, 3, 4, 5, 6]
    lease = works[0].lease
    assert [b for b in range(10) if lease.is_boundary(b)] == [2, 5, 9]
    (end,) = (e for e in events if isinstance(e, ChunkEnd))
    assert (end.batches, end.stats.samples) == (7, LINES)


def test_a_lost_lease_is_left_and_not_claimed_again(log: Path) -> None:
    script = Script(make_answer(log, 0), make_answer(log, 1))
    lost = threading.Event()

    def cursors(chunk: int) -> list[int]:
        assert chunk == 0 or lost.wait(60)  # the next lease is asked for after this
        return [0, 0]

    with WorkStream(make_source(make_job(log), script, cursors)) as stream:
        first = stream.get(60)
        assert isinstance(first, LeasedBatch)
        first.lease.is_lost = True
        lost.set()
        assert stream.unfinished == [] or stream.unfinished[0].id == 1
        read_all(stream)
    assert script.have[-1] == ["1"]


def test_leases_taken_over_come_first_with_fresh_cursors(log: Path) -> None:
    with WorkStream(make_source(make_job(log), Script(make_answer(log, 0)))) as stream:
        work = stream.get(60)
        assert isinstance(work, LeasedBatch)
    source = make_source(make_job(log), Script(), lambda chunk: [6, 6])
    source.held = [work.lease]
    with WorkStream(source) as stream:
        again = stream.get(60)
        assert isinstance(again, LeasedBatch)
        assert (again.lease, again.batch) == (work.lease, 6)


def test_waiting_is_said_and_ended_by_work(log: Path) -> None:
    script = Script({"kind": "wait", "retry_after_s": 0.01}, make_answer(log, 0))
    with WorkStream(make_source(make_job(log), script)) as stream:
        kinds = [type(e) for e in read_all(stream)]
    assert kinds[:2] == [NoWork, LeasedBatch]
    assert kinds[-2:] == [ChunkEnd, End]


def test_evaluations_read_their_split_in_larger_batches(log: Path) -> None:
    script = Script(make_answer(log, 0, "evaluate", "valid"))
    source = make_source(make_job(log, valid=str(log)), script, lambda chunk: pytest.fail("no cursors"))
    with WorkStream(source) as stream:
        works = [e for e in read_all(stream) if isinstance(e, LeasedBatch)]
    assert [len(w.item.batch) for w in works] == [60, 40]
    with (
        WorkStream(make_source(make_job(log), Script(make_answer(log, 0, "evaluate", "test")))) as stream,
        pytest.raises(ConfigError, match="'test'"),
    ):
        read_all(stream)


@pytest.mark.parametrize("answer", [{"kind": "dance"}, {}, {"kind": "train", "chunk": {"id": "0"}}])
def test_nonsense_of_the_coordinator_is_an_error(log: Path, answer: dict[str, Any]) -> None:
    with WorkStream(make_source(make_job(log), Script(answer))) as stream, pytest.raises(DataError):
        read_all(stream)


def test_closing_ends_the_thread_in_the_middle(log: Path) -> None:
    before = set(threading.enumerate())
    stream = WorkStream(make_source(make_job(log), Script(*(make_answer(log, n) for n in range(100)))))
    assert stream.get(60) is not None
    stream.close()
    assert not [t for t in threading.enumerate() if t not in before]
