"""hybrid: rows as in async, applied when they arrive; dense parameters as in sync, one step of all trainers together.

A feasign is rarely in two batches at once, so rows suffer little from being pushed at any time; the dense parameters,
which every batch changes, suffer most and are exact.
"""

from __future__ import annotations

from elasticctr.ps.client import GroupMode
from elasticctr.ps.leases import Work
from elasticctr.ps.strategies.grouped import Grouped
from elasticctr.ps.strategies.strategy import Prepared


class Hybrid(Grouped):
    group = GroupMode.dense

    def prepare(self, work: Work) -> Prepared:
        if self.settings.prefetch:
            return Prepared(work, self.remote.start(work.item, insert=True))
        return Prepared(work)
