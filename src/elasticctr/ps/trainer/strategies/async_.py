"""async: pull, compute, push; every push is applied when it arrives.

Rows and parameters a gradient was computed from may be older than those it is applied to, by what others push in
between and by what this trainer has under way: `staleness` bounds the latter. Dense parameters come with the rows of
every `staleness`-th batch: most of a pull for a small batch would be parameters, which lack the pushes under way
anyhow. With `staleness: 0` every push is waited for and nothing is fetched ahead, so that one trainer alone is one
process.
"""

from __future__ import annotations

from elasticctr.ps.trainer.leases import LeasedBatch
from elasticctr.ps.trainer.strategies.strategy import Outcome, Prepared, Strategy

_STALENESS = 2


class Async(Strategy):
    _batches = 0  # prepared so far

    @property
    def _staleness(self) -> int:
        return _STALENESS if self.settings.staleness is None else self.settings.staleness

    def prepare(self, work: LeasedBatch) -> Prepared:
        if self.settings.prefetch and self._staleness > 0:
            wants_dense = self._batches % self._staleness == 0
            self._batches += 1
            item = work.item
            return Prepared(work, self.remote.start_rows(item, item.lookups, insert=True, wants_dense=wants_dense))
        return Prepared(work)

    def step(self, prepared: Prepared) -> Outcome:
        gradients = self.remote.compute(self.pulling(prepared))
        self.remote.push(self.head(prepared.work), gradients)
        self.remote.wait(self._staleness)
        return Outcome(gradients.loss, gradients.logits, gradients.is_finite)
