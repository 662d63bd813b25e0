"""sync: one step of all trainers together, equal to one process that learns from the union of their batches.

Rows are pulled after the step before is taken, never ahead of it.
"""

from __future__ import annotations

from elasticctr.ps.trainer.client import GroupMode
from elasticctr.ps.trainer.strategies.grouped import Grouped


class Sync(Grouped):
    @property
    def group(self) -> GroupMode:
        return GroupMode.all
