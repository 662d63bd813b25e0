"""A sparse table in this process, a thin layer over the native one.

A training step is `lookup = layout.lookup(...)` (ahead of time, on any thread), `find(lookup, insert=True)`, `pull`,
the model, `push`. The trainer decides which slots share a table; this module knows neither schemas nor torch. Arrays
may be any float32 arrays on the CPU that support DLPack, such as NumPy arrays and detached torch tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr._native import Layout, Lookup, TableStats
from elasticctr.errors import ConfigError, Corruption
from elasticctr.table.settings import (
    ConstantSettings,
    InitializerSettings,
    NormalSettings,
    OptimizerSettings,
    TableSettings,
    UniformSettings,
)

Array = Any  # float32 [samples, width] or [samples, length, width], columns contiguous


@dataclass(frozen=True, slots=True)
class SlotTarget:
    """Where a slot's pooled rows go: the array number `target` and each segment's first column in it."""

    slot: int  # number of the sparse slot in the batch
    columns: Mapping[str, int]  # segment name -> column; this slot neither pulls nor trains a missing segment
    pooling: Literal["sum", "mean", "first", "last"] = "sum"  # first, last: a sequence of `length` values
    target: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows copied out of a table."""

    feasigns: NDArray[np.uint64]  # [n]
    weights: NDArray[np.float32]  # [n, all segments' weights side by side]
    shows: NDArray[np.float32]  # [n]
    clicks: NDArray[np.float32]  # [n]
    last_seen: NDArray[np.uint32]  # [n]
    found: NDArray[np.bool_]  # [n]; a feasign without a row has zeros everywhere

    def __len__(self) -> int:
        return len(self.feasigns)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in a table's history, written as `epoch-id`."""

    epoch: int
    id: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.id:016x}"

    @staticmethod
    def parse(text: str) -> Mark:
        epoch, _, given = text.partition("-")
        try:
            mark = Mark(int(epoch), int(given, 16))
        except ValueError:
            raise Corruption(f"{text!r} is not a mark of a table") from None
        if not (0 <= mark.epoch < 1 << 32 and 0 <= mark.id < 1 << 64):
            raise Corruption(f"{text!r} is not a mark of a table")
        return mark


class Table:
    """Maps u64 feasigns to rows. Thread-safe: reads run in parallel, changes one at a time."""

    def __init__(self, settings: TableSettings) -> None:
        self.settings = settings
        self._native = _native.Table(
            name=settings.name,
            seed=settings.seed,
            counters=settings.counters,
            segments=_to_segments(settings),
            admission_count=settings.admission.count,
            admission_probability=settings.admission.probability,
        )

    def layout(self, slots: Sequence[SlotTarget]) -> Layout:
        """The plan for pulling and pushing `slots`; its `lookup(values, offsets, samples)` takes a batch."""
        return make_layout(self.settings, slots)

    def find(self, lookup: Lookup, insert: bool = False) -> None:
        """Finds the row of every feasign. With `insert`, once per training batch, counts and admits new ones."""
        self._native.find(lookup, insert)

    def pull(self, lookup: Lookup, layout: Layout, targets: Sequence[Array]) -> None:
        """Pools rows into the layout's columns of `targets`. REQUIRES: `find` was called."""
        self._native.pull(lookup, layout, targets)

    def push(
        self,
        lookup: Lookup,
        layout: Layout,
        gradients: Sequence[Array],
        clicks: Array | None = None,
        shows: Array | None = None,
        now: int = 0,
        rate_scale: float = 1.0,
        gradient_scale: float = 1.0,
    ) -> None:
        """Sums each feasign's gradients over the batch and steps its row once.

        `now` becomes last_seen: a day, hour or step, as the caller chooses. `rate_scale` multiplies learning rates.
        """
        self._native.push(lookup, layout, gradients, clicks, shows, now, rate_scale, gradient_scale)

    def pull_rows(self, feasigns: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Weights [n, all segments] of distinct feasigns, zeros for those without a row."""
        return self._native.pull_rows(feasigns)

    def insert_rows(
        self, feasigns: NDArray[np.uint64], occurrences: NDArray[np.uint32] | None = None
    ) -> NDArray[np.float32]:
        """As `pull_rows`, after counting new feasigns (once each, or `occurrences` times) and admitting them."""
        return self._native.insert_rows(feasigns, occurrences)

    def push_rows(
        self,
        feasigns: NDArray[np.uint64],
        gradients: NDArray[np.float32],
        shows: NDArray[np.float32],
        clicks: NDArray[np.float32],
        masks: NDArray[np.uint64] | None = None,
        now: int = 0,
        rate_scale: float = 1.0,
        gradient_scale: float = 1.0,
    ) -> None:
        """Steps the rows of distinct feasigns once, by summed gradients [n, all segments]. Skips those without a row.

        Bit i of a mask says that segment i has a gradient; without masks all have.
        """
        self._native.push_rows(feasigns, gradients, shows, clicks, masks, now, rate_scale, gradient_scale)

    def add_rows(self, feasigns: NDArray[np.uint64], deltas: NDArray[np.float32]) -> None:
        """Adds deltas [n, all segments] to the weights of distinct feasigns. Skips those without a row."""
        self._native.add_rows(feasigns, deltas)

    def get(self, feasigns: NDArray[np.uint64]) -> Rows:
        """Rows of given feasigns, for tools and tests."""
        weights, found, shows, clicks, last_seen = self._native.get(feasigns)
        return Rows(feasigns, weights, shows, clicks, last_seen, found)

    def rows(
        self,
        limit: int = 65536,
        buckets: tuple[int, int] = (0, _native.BUCKETS),
        since: Mark | None = None,
    ) -> Iterator[Rows]:
        """All rows of a range of buckets, in blocks of up to `limit`. REQUIRES: the table does not change meanwhile.

        With `since`, only rows created or changed after that mark; FailedPrecondition if the table does not know it.
        """
        cursor = 0
        known = None if since is None else (since.epoch, since.id)
        while True:
            cursor, feasigns, weights, shows, clicks, last_seen = self._native.export_rows(
                *buckets, limit, cursor, known
            )
            if len(feasigns):
                yield Rows(feasigns, weights, shows, clicks, last_seen, np.ones(len(feasigns), dtype=np.bool_))
            if cursor == 0:
                return

    def mark(self, *, by_content: bool = False) -> Mark:
        """Marks this moment. From the first mark on the table tracks which rows change; marks are saved with it.

        Marks are random or, with `by_content`, derived from all rows, so that the same history has the same marks.
        """
        return Mark(*self._native.mark(by_content))

    def knows(self, mark: Mark) -> bool:
        """Whether it knows what changed since: the mark is one of the last 255 of this table's own history."""
        return self._native.knows(mark.epoch, mark.id)

    def gone(self, since: Mark) -> NDArray[np.uint64]:
        """Feasigns whose rows were dropped after a mark and not created again, sorted. Raises like `rows`."""
        return self._native.gone(since.epoch, since.id)

    def forget(self, mark: Mark) -> None:
        """Forgets this mark and older ones, and frees their memory."""
        self._native.forget(mark.epoch, mark.id)

    def decay(self, rate: float) -> None:
        """Multiplies every row's show and click by `rate`."""
        self._native.decay(rate)

    def evict(
        self, min_score: float = 0.0, oldest: int = 0, show_weight: float = 1.0, click_weight: float = 1.0
    ) -> int:
        """Drops rows that score below `min_score` or were last seen before `oldest`. Returns how many.

        A score is show_weight * (show - click) + click_weight * click. Earlier lookups need `find` again.
        """
        return self._native.evict(show_weight, click_weight, min_score, oldest)

    def erase(self, feasigns: NDArray[np.uint64]) -> int:
        """Drops the rows of given feasigns. Returns how many existed."""
        return self._native.erase(feasigns)

    def stats(self) -> TableStats:
        return self._native.stats()

    def __len__(self) -> int:
        return self._native.stats().rows

    def save(self, path: str | Path) -> None:
        """Writes the table to one file, completely or not at all. docs/formats/table.md"""
        self._native.save(str(path), self.settings.model_dump_json())

    def load(self, path: str | Path) -> None:
        """Replaces all rows by those of a file with the same segments. Corruption, FailedPrecondition, NotFound."""
        self._native.load(str(path))

    def load_part(self, path: str | Path, first_bucket: int = 0, last_bucket: int = _native.BUCKETS) -> None:
        """Adds a file's rows whose buckets are in [first, last). Drops all marks."""
        self._native.load_part(str(path), first_bucket, last_bucket)

    def reset(self) -> None:
        """Empties the table."""
        self._native.reset()


def make_layout(settings: TableSettings, slots: Sequence[SlotTarget]) -> Layout:
    """The layout of a table with these settings, local or remote."""
    names = [segment.name for segment in settings.segments]
    for slot in slots:
        for name in slot.columns:
            if name not in names:
                raise ConfigError(f"table {settings.name!r} has no segment {name!r}; it has {', '.join(names)}")
    return Layout(
        [
            _native.SlotTarget(
                slot.slot,
                slot.target,
                getattr(_native.PoolingKind, slot.pooling),
                [slot.columns.get(name, -1) for name in names],
                slot.length,
            )
            for slot in slots
        ],
        [segment.dim for segment in settings.segments],
    )


def to_native(settings: TableSettings) -> _native.TableSettings:
    """Native settings, for native code that makes its own tables: the pserver."""
    return _native.TableSettings(
        name=settings.name,
        seed=settings.seed,
        counters=settings.counters,
        segments=_to_segments(settings),
        admission_count=settings.admission.count,
        admission_probability=settings.admission.probability,
    )


def _to_segments(settings: TableSettings) -> list[_native.SegmentSettings]:
    return [
        _native.SegmentSettings(
            segment.name, segment.dim, _to_optimizer(segment.optimizer), _to_initializer(segment.initializer)
        )
        for segment in settings.segments
    ]


def _to_optimizer(settings: OptimizerSettings) -> _native.OptimizerSettings:
    native = _native.OptimizerSettings()
    for name, value in settings.model_dump(exclude={"name"}).items():
        setattr(native, name, value)
    native.kind = getattr(_native.OptimizerKind, settings.name)
    return native


def _to_initializer(settings: InitializerSettings) -> _native.InitializerSettings:
    kind = getattr(_native.InitializerKind, settings.name)
    if isinstance(settings, ConstantSettings):
        return _native.InitializerSettings(kind, settings.value)
    if isinstance(settings, UniformSettings):
        return _native.InitializerSettings(kind, settings.low, settings.high)
    if isinstance(settings, NormalSettings):
        return _native.InitializerSettings(kind, settings.mean, settings.std)
    return _native.InitializerSettings(kind)
