"""half_async: the gradients of `merge` batches are merged and sent as those of one batch, while the next are computed.

`queue` bounds how many batches may be merged but not applied yet, `merge` how many become one push: elsewhere the
communicator's send_queue_size and max_merge_var_num. A push never reaches over the end of a chunk, nor over a place
where some pserver already has what lies before it.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticctr.ps.trainer.client import PushKind
from elasticctr.ps.trainer.leases import LeasedBatch
from elasticctr.ps.trainer.remote import Remote, make_head
from elasticctr.ps.trainer.strategies.strategy import Outcome, Prepared, Strategy
from elasticctr.train.cluster_settings import ClusterSettings


class HalfAsync(Strategy):
    def __init__(self, remote: Remote, settings: ClusterSettings, rate_scale: Callable[[], float]) -> None:
        super().__init__(remote, settings, rate_scale)
        self._merger = remote.client.merger(is_mean=True)
        self._works: list[LeasedBatch] = []  # merged and not sent
        self._outstanding = max(settings.queue // settings.merge - 1, 0)

    def prepare(self, work: LeasedBatch) -> Prepared:
        if self.settings.prefetch:
            return Prepared(work, self.remote.start(work.item, insert=True))
        return Prepared(work)

    def step(self, prepared: Prepared) -> Outcome:
        work, gradients = prepared.work, self.remote.compute(self.pulling(prepared))
        batch = work.item.batch
        is_taken = self._merger.add(
            work.item.lookups,
            self.remote.layouts,
            gradients.arrays,
            gradients.dense,
            batch.labels[:, 0],
            batch.shows,
            weight=len(batch),
        )
        self._works.append(work)
        if len(self._works) >= self.settings.merge or work.lease.is_boundary(work.batch + 1):
            self._send()
        return Outcome(gradients.loss, gradients.logits, is_taken)

    def flush(self) -> None:
        if self._works:
            self._send()
        self.remote.wait()

    def drop(self) -> None:
        super().drop()
        self._clear()

    def _send(self) -> None:
        first, last = self._works[0], self._works[-1]
        kind = PushKind.gradients if self._merger.weight else PushKind.nothing
        head = make_head(
            first.lease.id,
            first.batch,
            last.batch + 1,
            self._merger.weight,
            rate_scale=self.rate_scale(),
            kind=kind,
        )
        if kind == PushKind.gradients:
            self.remote.client.push_merged(head, self._merger)
        else:
            self.remote.client.push_rows(head, [])
        self._clear()
        self.remote.wait(self._outstanding)

    def _clear(self) -> None:
        self._merger.clear()
        self._works = []
