"""The interface of a strategy: batches go in; pservers, groups and staleness stay inside.

A batch is prepared while the one before it computes, then stepped. Batches of a chunk come in order and without gaps,
from the smallest cursor of the pservers on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from elasticctr.ps.trainer.client import GroupMode, PushHead
from elasticctr.ps.trainer.leases import LeasedBatch
from elasticctr.ps.trainer.remote import Pulling, Remote, make_head
from elasticctr.train.cluster_settings import ClusterSettings


@dataclass(slots=True)
class Prepared:
    """A batch before its turn, with what its strategy has begun for it."""

    work: LeasedBatch
    begun: Any = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a batch was scored before it was learned from."""

    loss: float
    logits: Tensor
    is_finite: bool  # False: its gradients were not used; it counts as seen

    @property
    def loss_sum(self) -> float:
        return self.loss * len(self.logits) if math.isfinite(self.loss) else 0.0


class Strategy(ABC):
    is_grouped: ClassVar[bool] = False  # pservers wait for a push of every member of the group

    def __init__(self, remote: Remote, settings: ClusterSettings, rate_scale: Callable[[], float]) -> None:
        self.remote = remote
        self.settings = settings
        self.rate_scale = rate_scale  # of the next push

    def prepare(self, work: LeasedBatch) -> Prepared:
        """Begins what can be begun before the batch's turn."""
        return Prepared(work)

    @abstractmethod
    def step(self, prepared: Prepared) -> Outcome:
        """Learns from a batch. Its gradients may still be on their way when this returns."""

    def flush(self) -> None:
        """Waits until every batch stepped so far is applied on every pserver."""
        self.remote.wait()

    def drop(self) -> None:
        """Forgets all that is not applied: pservers went back, or another trainer has the chunk."""
        self.remote.drop()

    def idle(self, wait_s: float) -> None:  # noqa: B027
        """A turn without work. A member of a group takes part with an empty push, so that others need not wait."""

    def close(self) -> None:  # noqa: B027
        """Ends its threads. What was not flushed is not sent."""

    def pulling(self, prepared: Prepared) -> Pulling:
        """The rows of a batch, which may be on their way already."""
        begun = prepared.begun
        return begun if isinstance(begun, Pulling) else self.remote.start(prepared.work.item, insert=True)

    def head(self, work: LeasedBatch, group: GroupMode = GroupMode.none) -> PushHead:
        """Of a push of one batch."""
        chunk, batch = work.lease.id, work.batch
        return make_head(chunk, batch, batch + 1, len(work.item.batch), rate_scale=self.rate_scale(), group=group)
