"""The work of a trainer as one stream: chunks leased one ahead, batches with lookups prepared on a thread.

A chunk starts at the smallest cursor of the pservers; what lies before it is applied everywhere. The thread leases the
next chunk as soon as it has read the last one, so that computing never waits for a lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticctr.data.ahead import Ahead
from elasticctr.data.batch import Batch
from elasticctr.data.chunks import Chunk, read_chunk
from elasticctr.data.pipeline import Stats
from elasticctr.data.settings import DataSettings
from elasticctr.errors import (
    ConfigError,
    Corruption,
    DataError,
    ElasticCTRError,
    FailedPrecondition,
    NotFound,
)
from elasticctr.table import Lookup
from elasticctr.train.job import Job
from elasticctr.train.reading import DEPTH, GROUP_SAMPLES, PreparedBatch


class Unreadable(Exception):
    """A chunk that no trainer can read."""

    def __init__(self, error: ElasticCTRError) -> None:
        self.error = error
        super().__init__(str(error))


@dataclass(slots=True, eq=False)
class ChunkLease:
    """A chunk this trainer may work on."""

    kind: Literal["train", "evaluate"]
    chunk: Chunk
    split: str  # of an evaluation: valid, test
    cursors: Sequence[int] = ()  # by pserver
    is_lost: bool = False  # the rest of it is skipped
    is_done: bool = False  # every batch is applied; to be reported
    is_over: bool = False  # and reported

    @property
    def id(self) -> int:
        return self.chunk.id

    @property
    def name(self) -> str:
        return str(self.chunk.id)

    @property
    def first(self) -> int:
        return min(self.cursors, default=0)

    def is_boundary(self, batch: int) -> bool:
        """Whether some pserver has the batches before this one and no more: pushes must not reach over it."""
        return batch in self.cursors


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """One batch of a lease."""

    lease: ChunkLease
    batch: int
    item: PreparedBatch


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """Every batch of a lease was given out."""

    lease: ChunkLease
    batches: int
    stats: Stats


@dataclass(frozen=True, slots=True)
class NoWork:
    """There is none now, until another event follows."""


@dataclass(frozen=True, slots=True)
class End:
    """There will be none."""


Event = LeasedBatch | ChunkEnd | NoWork | End


@dataclass(slots=True)
class WorkSource:
    """Where work comes from. Everything is called on the stream's thread."""

    job: Job
    lease: Callable[[list[str]], dict[str, Any]]  # names of the chunks held -> the coordinator's answer
    cursors: Callable[[int], list[int]]  # of a chunk, by pserver; noted for pushes
    look_up: Callable[[Batch], tuple[Lookup, ...]]
    held: list[ChunkLease] = field(default_factory=list)  # continued before others
    leases: list[ChunkLease] = field(default_factory=list)  # read from this source, and not over
    closed: threading.Event = field(default_factory=threading.Event)

    def events(self) -> Generator[Event, None, None]:
        for lease in self.held:
            self.leases.append(lease)
            yield from self._read(lease)
        while not self.closed.is_set():
            self.leases = [lease for lease in self.leases if not (lease.is_lost or lease.is_over)]
            answer = self.lease([lease.name for lease in self.leases])
            kind = answer.get("kind")
            if kind == "end":
                yield End()
                return
            if kind in ("train", "evaluate"):
                lease = ChunkLease(kind, Chunk.from_dict(answer["chunk"]), str(answer.get("split") or ""))
                self.leases.append(lease)
                yield from self._read(lease)
            elif kind == "wait":
                yield NoWork()
                self.closed.wait(min(max(float(answer.get("retry_after_s", 0.1)), 0.01), 5.0))
            else:
                raise DataError(f"the coordinator answered a lease with {kind!r}; is it of another version?")

    def _read(self, lease: ChunkLease) -> Generator[Event, None, None]:
        if lease.kind == "train":
            lease.cursors = self.cursors(lease.id)
        try:
            yield from self._read_batches(lease)
        except (DataError, NotFound, Corruption, FailedPrecondition) as e:
            raise Unreadable(e) from e

    def _read_batches(self, lease: ChunkLease) -> Generator[Event, None, None]:
        settings, batch_size = self._data_of(lease)
        batch = lease.first
        with read_chunk(lease.chunk, self.job.samples, settings, batch_size, first_batch=batch) as batches:
            for samples in batches:
                if self.closed.is_set() or lease.is_lost:
                    break
                yield LeasedBatch(lease, batch, PreparedBatch(samples, self.look_up(samples), {}))
                batch += 1
            yield ChunkEnd(lease, batch, batches.stats)

    def _data_of(self, lease: ChunkLease) -> tuple[DataSettings, int]:
        data, train = self.job.data, self.job.train
        if lease.kind == "train":
            return data.train, train.batch_size
        settings = {"valid": data.valid, "test": data.test}.get(lease.split)
        if settings is None:
            raise ConfigError(
                f"the coordinator asks for an evaluation of {lease.split!r}, which this job has no data of"
            )
        return settings, train.eval_batch_size


class WorkStream:
    """Events in order. Closing it ends the thread."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        # Nothing may be leased once the stream is closed, so closing waits for a lease that is asked for.
        self._events = Ahead(
            source.events(), DEPTH, weigh=_weigh, group=GROUP_SAMPLES, waits_for_end=True, name="elasticctr-leases"
        )

    def get(self, timeout_s: float) -> Event | None:
        """The next event, or None if there is none in time. Raises what reading ended with."""
        return self._events.poll(timeout_s)

    @property
    def unfinished(self) -> list[ChunkLease]:
        """Leases with batches that are not known to be applied."""
        return [lease for lease in list(self._source.leases) if not (lease.is_lost or lease.is_done)]

    def close(self) -> None:
        self._source.closed.set()
        self._events.close()

    def __enter__(self) -> WorkStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _weigh(event: Event) -> int:
    """In samples. Other events than batches are handed over at once."""
    return len(event.item.batch) if isinstance(event, LeasedBatch) else GROUP_SAMPLES
