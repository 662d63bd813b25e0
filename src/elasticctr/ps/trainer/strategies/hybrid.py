"""hybrid: one step of all trainers together, as in sync, but the rows of a batch are fetched while the one before it
computes, so training never waits for them; they may lack the step before. Dense parameters never do.

With `step_rows: apart` each push steps its rows when it arrives and only dense parameters wait for the others. Pservers
then have their work spread over time; a feasign of several trainers' shares takes a step of full size for each, which
optimizers that divide by the gradient's size (Adam, Adagrad) make a higher learning rate.
"""

from __future__ import annotations

from elasticctr.ps.trainer.client import GroupMode
from elasticctr.ps.trainer.leases import LeasedBatch
from elasticctr.ps.trainer.strategies.grouped import Grouped
from elasticctr.ps.trainer.strategies.strategy import Prepared


class Hybrid(Grouped):
    @property
    def group(self) -> GroupMode:
        return GroupMode.all if self.settings.step_rows == "together" else GroupMode.dense

    def prepare(self, work: LeasedBatch) -> Prepared:
        if self.settings.prefetch:
            return Prepared(work, self.remote.start(work.item, insert=True))
        return Prepared(work)
