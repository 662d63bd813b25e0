"""geo: rows and dense parameters are stepped here, and what they changed by is exchanged every `every` batches.

A period is the time between two exchanges. A row is fetched when a batch of the period first needs it, stepped here
with optimizer state of its own, and sent as its change over the period divided by the number of trainers; the dense
parameters likewise. Periods end with their chunk, and where some pserver already has what lies before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr._native import SummedGradients
from elasticctr.ps.trainer.client import PushKind, RowGradients
from elasticctr.ps.trainer.leases import LeasedBatch
from elasticctr.ps.trainer.remote import Gradients, Pulling, Remote, make_head
from elasticctr.ps.trainer.strategies.strategy import Outcome, Prepared, Strategy
from elasticctr.table import Lookup, SegmentSettings, SgdSettings, Table, TableSettings, ZerosSettings
from elasticctr.table.remote import sum_gradients
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.sparse import today

Feasigns = NDArray[np.uint64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Missing:
    """Rows of a batch that this period has not fetched yet, on their way."""

    period: int
    feasigns: list[Feasigns]  # by table
    pulling: Pulling | None  # None: there are none


class Geo(Strategy):
    def __init__(self, remote: Remote, settings: ClusterSettings, rate_scale: Callable[[], float]) -> None:
        super().__init__(remote, settings, rate_scale)
        self._tables = remote.learner.sparse.tables
        self._fetched = [Table(_weights_only(table.settings)) for table in self._tables]  # rows as they came
        self._dense = np.empty(0, dtype=np.float32)  # the parameters a period began with
        self._is_dropped = False  # the model's parameters match no pserver's
        self._period = 0
        self._works: list[LeasedBatch] = []  # batches of this period
        self._sums: list[list[SummedGradients]] = []

    def prepare(self, work: LeasedBatch) -> Prepared:
        return Prepared(work, self._fetch(work) if self.settings.prefetch else None)

    def step(self, prepared: Prepared) -> Outcome:
        work, learner = prepared.work, self.remote.learner
        if not self._works:
            if self._is_dropped:
                self.remote.pull_dense()
                self._is_dropped = False
            self._dense = learner.flat_dense().numpy()
        self._take_rows(work, prepared.begun)
        inputs = learner.sparse.pull(work.item, train=True)
        gradients = self.remote.differentiate(work.item, inputs)
        sums = self._sum(gradients)
        is_dense_finite = bool(np.isfinite(gradients.dense).all())
        is_finite = gradients.is_finite and is_dense_finite and all(s.is_finite for s in sums)
        if is_finite:
            scale, now = self.rate_scale(), today()
            for table, s in zip(self._tables, sums, strict=True):
                table.push_rows(s.feasigns, s.gradients, s.shows, s.clicks, s.masks, now=now, rate_scale=scale)
            learner.apply_dense(scale)
            self._sums.append(sums)
        self._works.append(work)
        if len(self._works) >= self.settings.every or work.lease.is_boundary(work.batch + 1):
            self._exchange()
        return Outcome(gradients.loss, gradients.logits, is_finite)

    def flush(self) -> None:
        if self._works:
            self._exchange()
        self.remote.wait()

    def drop(self) -> None:
        self.remote.drop()
        for table in self._tables:
            table.reset()
        self._is_dropped = True
        self._begin_period()

    def _fetch(self, work: LeasedBatch) -> _Missing:
        lookups, feasigns = [], []
        for fetched, lookup in zip(self._fetched, work.item.lookups, strict=True):
            every = lookup.feasigns
            missing = every[~fetched.get(every).found]
            feasigns.append(missing)
            lookups.append(_look_up(missing))
        is_any = any(len(missing) for missing in feasigns)
        pulling = self.remote.start_rows(work.item, lookups, insert=True) if is_any else None
        return _Missing(self._period, feasigns, pulling)

    def _take_rows(self, work: LeasedBatch, begun: object) -> None:
        """Makes sure that every row of the batch is here, as fetched in this period and stepped since."""
        missing = begun if isinstance(begun, _Missing) and begun.period == self._period else self._fetch(work)
        if missing.pulling is None:
            return
        rows = self.remote.use_rows(
            missing.pulling, lambda fetch: [np.array(fetch.rows(t)) for t in range(len(self._tables))]
        )
        for table, fetched, feasigns, values in zip(self._tables, self._fetched, missing.feasigns, rows, strict=True):
            # Fetched ahead, they may include rows that the batch before fetched too, and has stepped since.
            is_new = ~fetched.get(feasigns).found
            new, weights = feasigns[is_new], values[is_new]
            table.add_rows(new, weights - table.insert_rows(new))
            fetched.insert_rows(new)
            fetched.add_rows(new, weights)

    def _exchange(self) -> None:
        learner, share = self.remote.learner, np.float32(1 / self.settings.trainers)
        tables = []
        for number, (table, fetched) in enumerate(zip(self._tables, self._fetched, strict=True)):
            feasigns, shows, clicks = _count([sums[number] for sums in self._sums])
            delta = (table.pull_rows(feasigns) - fetched.pull_rows(feasigns)) * share
            tables.append(RowGradients(feasigns, shows, clicks, delta))
        first, last = self._works[0], self._works[-1]
        samples = sum(len(work.item.batch) for work in self._works)
        head = make_head(first.lease.id, first.batch, last.batch + 1, samples, kind=PushKind.deltas)
        self.remote.client.push_rows(head, tables, (learner.flat_dense().numpy() - self._dense) * share)
        self.remote.wait()
        self.remote.pull_dense()
        self._begin_period()

    def _sum(self, gradients: Gradients) -> list[SummedGradients]:
        item = gradients.item
        return [
            sum_gradients(lookup, layout, arrays, item.batch.labels[:, 0], item.batch.shows)
            for lookup, layout, arrays in zip(item.lookups, self.remote.layouts, gradients.arrays, strict=True)
        ]

    def _begin_period(self) -> None:
        for fetched in self._fetched:
            fetched.reset()
        self._period += 1
        self._works, self._sums = [], []


def _look_up(feasigns: Feasigns) -> Lookup:
    """A lookup of distinct feasigns, in their order."""
    n = len(feasigns)
    return Lookup(feasigns, np.arange(n + 1, dtype=np.int32), n, [0])


def _weights_only(settings: TableSettings) -> TableSettings:
    """A table of the same rows without optimizer state, new ones zero."""
    segments: Sequence[SegmentSettings] = [
        SegmentSettings(name=s.name, dim=s.dim, optimizer=SgdSettings(), initializer=ZerosSettings())
        for s in settings.segments
    ]
    return TableSettings(name=settings.name, segments=tuple(segments), seed=settings.seed, counters=False)


def _count(sums: Sequence[SummedGradients]) -> tuple[Feasigns, Floats, Floats]:
    """The feasigns of one table in several batches, each once, and how often they were shown and clicked."""
    if not sums:
        return np.empty(0, np.uint64), np.empty(0, np.float32), np.empty(0, np.float32)
    feasigns, places = np.unique(np.concatenate([s.feasigns for s in sums]), return_inverse=True)
    shows = np.bincount(places, np.concatenate([s.shows for s in sums]), len(feasigns)).astype(np.float32)
    clicks = np.bincount(places, np.concatenate([s.clicks for s in sums]), len(feasigns)).astype(np.float32)
    return feasigns, shows, clicks
