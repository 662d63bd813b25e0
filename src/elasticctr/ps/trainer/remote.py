"""A learner whose rows and dense parameters live on pservers: pulled for a batch, gradients sent back.

Strategies decide when; this module knows how. While pservers do not answer, `Failover`, which is the trainer role's,
decides how long to wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elasticctr.errors import DeadlineExceeded, Unavailable
from elasticctr.models.inputs import Inputs
from elasticctr.ps.trainer.client import Fetch, GroupMode, PsClient, PushHead, PushKind
from elasticctr.table import Lookup
from elasticctr.train.input_plan import require_gradients
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch
from elasticctr.train.sparse import today

T = TypeVar("T")

_POLL_S = 0.05  # a lost pserver is noticed by then; looking whether one is costs microseconds


class Failover(Protocol):
    """What to do about pservers that do not answer. Both raise when waiting is useless."""

    def retry(self, call: Callable[[], T]) -> T:
        """The result of a call, repeated while pservers cannot be reached."""
        ...

    def poll(self, waited_s: float) -> None:
        """Called from time to time during a wait."""
        ...


class NoFailover:
    """Every failure is final: for tests and tools."""

    def __init__(self, wait_s: float = 120.0) -> None:
        self._wait_s = wait_s

    def retry(self, call: Callable[[], T]) -> T:
        return call()

    def poll(self, waited_s: float) -> None:
        if waited_s > self._wait_s:
            raise DeadlineExceeded(f"the pservers did not answer within {self._wait_s:g} s")


@dataclass(slots=True)
class Pulling:
    """A batch whose rows are on their way."""

    item: PreparedBatch
    lookups: Sequence[Lookup]
    insert: bool
    wants_dense: bool
    fetch: Fetch | None  # None: to be asked for


@dataclass(frozen=True, slots=True)
class Gradients:
    """What a batch says about rows and dense parameters, and how it was scored before. Good until the next one."""

    item: PreparedBatch
    loss: float
    logits: Tensor
    arrays: list[Any]  # by table, a list of tensors as the model's inputs are
    dense: NDArray[np.float32]

    @property
    def is_finite(self) -> bool:
        """By the loss alone. All of them are checked where they are summed or sent."""
        return math.isfinite(self.loss)


class Remote:
    """Not for use by several threads at once."""

    def __init__(self, learner: Learner, client: PsClient, failover: Failover) -> None:
        self.learner = learner
        self.client = client
        self.failover = failover
        self.layouts = [plan.layout for plan in learner.plan.tables]
        self.step = 0  # pushes the pservers had applied when rows were last pulled
        # The model's parameters lie in this vector: what is received into it is in the model.
        vector, self._gradient = learner.lay_out_flat()
        self._values: NDArray[np.float32] = vector.numpy()
        self._version: int | None = None  # of what is in it; None: whatever comes is new

    def start(self, item: PreparedBatch, *, insert: bool) -> Pulling:
        """Asks for the rows of a batch, and for the dense parameters if there are newer ones."""
        return self.start_rows(item, item.lookups, insert=insert, wants_dense=True)

    def start_rows(
        self, item: PreparedBatch, lookups: Sequence[Lookup], *, insert: bool, wants_dense: bool = False
    ) -> Pulling:
        pulling = Pulling(item, lookups, insert, wants_dense, None)
        with suppress(Unavailable, DeadlineExceeded):  # asked again, with patience, when the batch's turn comes
            pulling.fetch = self.client.start_pull(lookups, insert, wants_dense)
        return pulling

    def take(self, pulling: Pulling) -> Inputs:
        """Waits for the rows and gives the model its inputs and its newest parameters."""
        inputs, arrays = self.learner.plan.make_inputs(pulling.item)

        def pool(fetch: Fetch) -> tuple[int, int]:
            targets: Any  # tensors, which native code reads as arrays
            for number, (layout, targets) in enumerate(zip(self.layouts, arrays, strict=True)):
                fetch.pool(number, layout, targets)
            return fetch.step, fetch.dense_version

        self.step, version = self.use_rows(pulling, pool)
        if version != self._version:
            self.refresh()
        return inputs

    def use_rows(self, pulling: Pulling, use: Callable[[Fetch], T]) -> T:
        """What `use` makes of the rows once they are there."""

        def arrive() -> T:
            fetch, pulling.fetch = pulling.fetch, None  # one that failed is of no more use
            if fetch is None:
                fetch = self.client.start_pull(pulling.lookups, pulling.insert, pulling.wants_dense)
            self._await(fetch)
            return use(fetch)

        return self.failover.retry(arrive)

    def _await(self, fetch: Fetch) -> None:
        """Until the rows are there, or are known not to come. Handles a lost pserver while it waits."""
        began_s = time.monotonic()
        while not fetch.wait(round(1000 * _POLL_S)):
            self.failover.poll(time.monotonic() - began_s)

    def refresh(self) -> None:
        """The newest dense parameters that have arrived, into the model."""
        self._version = self.client.copy_dense(self._values)

    def pull_dense(self) -> None:
        """Asks for the newest dense parameters, and puts them into the model."""
        self._version = self.failover.retry(lambda: self.client.pull_dense(self._values))

    def drop(self) -> None:
        """Forgets all that is not applied, and which parameters the model has: pservers may have gone back."""
        self.client.drop()
        self._version = None

    def compute(self, pulling: Pulling) -> Gradients:
        """The gradients of a batch whose rows are on their way."""
        inputs = self.take(pulling)
        require_gradients(inputs)
        return self.differentiate(pulling.item, inputs)

    def differentiate(self, item: PreparedBatch, inputs: Inputs) -> Gradients:
        """The gradients of a batch. They stay on the parameters too."""
        learner = self.learner
        learner.clear_gradients()
        loss, logits = learner.compute(inputs, item.batch)
        dense = learner.flat_gradient(self._gradient).numpy()
        return Gradients(item, loss, logits, list(learner.plan.gradients(inputs)), dense)

    def score(self, pulling: Pulling) -> NDArray[np.float32]:
        """Logits of a batch. Changes nothing."""
        return self.learner.score(self.take(pulling))

    def push(self, head: PushHead, gradients: Gradients) -> None:
        """Hands over the gradients of one batch; `wait` waits until they are applied."""
        item = gradients.item
        clicks, shows = item.batch.labels[:, 0], item.batch.shows
        self.client.push(head, item.lookups, self.layouts, gradients.arrays, gradients.dense, clicks, shows)

    def wait(self, outstanding: int = 0) -> None:
        """Until at most so many pushes are not applied yet."""
        began_s = time.monotonic()
        while True:
            try:
                self.client.wait_pushes(outstanding, _POLL_S)
                return
            except DeadlineExceeded:
                self.failover.poll(time.monotonic() - began_s)


def make_head(
    chunk: int,
    first: int,
    last: int,
    samples: int,
    *,
    rate_scale: float = 1.0,
    kind: PushKind = PushKind.gradients,
    group: GroupMode = GroupMode.none,
) -> PushHead:
    """The batches and the chunk of a push. Members of a group get the new dense parameters with it."""
    return PushHead(
        chunk=chunk,
        from_batch=first,
        to_batch=last,
        weight=samples,
        now=today(),
        rate_scale=rate_scale,
        kind=kind,
        group=group,
        wants_dense=group != GroupMode.none,
    )
