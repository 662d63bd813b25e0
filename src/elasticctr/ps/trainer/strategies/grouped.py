"""What sync and hybrid share: a push is answered when every member of the group has sent one.

A member without work sends empty pushes, one at a time, so that those with work need not wait for it.
"""

from __future__ import annotations

import time
from abc import abstractmethod

from elasticctr.errors import DeadlineExceeded
from elasticctr.ps.trainer.client import GroupMode, PushKind
from elasticctr.ps.trainer.remote import make_head
from elasticctr.ps.trainer.strategies.strategy import Outcome, Prepared, Strategy

_PAUSE_S = 0.001  # between empty pushes: in an idle group they would follow each other at once


class Grouped(Strategy):
    is_grouped = True

    @property
    @abstractmethod
    def group(self) -> GroupMode:
        """What waits for the others."""

    def step(self, prepared: Prepared) -> Outcome:
        if self.remote.client.outstanding:
            self.remote.wait()  # for an empty push of the time before this work
        gradients = self.remote.compute(self.pulling(prepared))
        self.remote.push(self.head(prepared.work, self.group), gradients)
        self.remote.wait()
        return Outcome(gradients.loss, gradients.logits, gradients.is_finite)

    def flush(self) -> None:
        """Every step was waited for. An empty push that is under way may be left to itself."""

    def idle(self, wait_s: float) -> None:
        client = self.remote.client
        if client.outstanding == 0:
            client.push_rows(make_head(0, 0, 0, 0, kind=PushKind.empty, group=self.group), [])
        try:
            client.wait_pushes(0, wait_s)
        except DeadlineExceeded:
            return  # the others compute; the push stays where it is
        time.sleep(_PAUSE_S)
