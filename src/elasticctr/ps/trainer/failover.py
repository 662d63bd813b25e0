"""While a pserver is being replaced, a trainer asks the coordinator where it is and tries again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.ps.coordinator_client import CoordinatorClient
from elasticctr.ps.trainer.client import PsClient
from elasticctr.ps.trainer.reporting import Reporter

T = TypeVar("T")

_PAUSES_S = (0.05, 0.1, 0.2, 0.5)
_ASK_S = 0.5  # between questions for addresses, in case the news of new ones was missed
_ENDING_S = 10.0  # patience of a trainer that has to stop


class Interrupted(Exception):
    """Work under way is void: pservers went back to a checkpoint."""


class CoordinatedFailover:
    def __init__(
        self,
        coordinator: CoordinatorClient,
        reporter: Reporter,
        *,
        wait_s: float,
        is_ending: Callable[[], bool],
        find_nearest: Callable[[str], str] = str,
    ) -> None:
        """`find_nearest`: the address to take for the one the coordinator says."""
        self._coordinator = coordinator
        self._reporter = reporter
        self._wait_s = wait_s
        self._is_ending = is_ending
        self._find_nearest = find_nearest
        self._generation = -1  # of the addresses the client knows
        self._asked = 0.0
        self._told: set[int] = set()  # shards the coordinator knows to be silent
        self.client: PsClient | None = None  # told of new addresses; set once it is made

    def retry(self, call: Callable[[], T]) -> T:
        """The result of a call, repeated while pservers cannot be reached."""
        began = time.monotonic()
        attempt = 0
        while True:
            try:
                result = call()
            except (Unavailable, DeadlineExceeded):
                time.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
                attempt += 1
                self.poll(time.monotonic() - began)
            else:
                self._told.clear()
                return result

    def poll(self, waited_s: float) -> None:
        """Looks for new addresses. Raises Interrupted, or Unavailable when it took too long."""
        self.check()
        silent = self._silent()
        if waited_s > (_ENDING_S if self._is_ending() else self._wait_s):
            trouble = "; ".join(silent.values()) or "no answer"
            raise Unavailable(f"pservers were waited for {waited_s:.0f} s: {trouble}")
        self._tell(silent)
        if silent:
            self._reporter.hurry()  # its answer says whether addresses have changed, or all was called off
            if time.monotonic() - self._asked > _ASK_S:
                self._find()

    def follow(self) -> None:
        """Switches to new addresses if the coordinator has announced some. May be called from another thread."""
        if self._coordinator.generation != self._generation:
            self._find()

    def check(self) -> None:
        """Raises Interrupted after a rollback, or the reason why the coordinator cannot be followed any longer."""
        if self._reporter.failure is not None:
            raise self._reporter.failure
        if self._reporter.is_reload:
            raise Interrupted

    def _silent(self) -> dict[int, str]:
        """Shards that cannot be reached, and why."""
        links = [] if self.client is None else self.client.stats()["pservers"]
        return {n: f"{link['address']}: {link['trouble']}" for n, link in enumerate(links) if not link["is_ready"]}

    def _tell(self, silent: dict[int, str]) -> None:
        for shard in silent.keys() - self._told:
            self._reporter.report("pserver_unreachable", str(shard))
        self._told = set(silent)

    def _find(self) -> None:
        generation = self._coordinator.generation
        self._asked = time.monotonic()
        try:
            found = self._coordinator.pservers()
        except ElasticCTRError:
            return  # what is known may still be right
        self._generation = generation
        for shard in found:
            if shard.address is not None and self.client is not None:
                address = self._find_nearest(shard.address)
                self.client.set_address(shard.shard, address, self._coordinator.incarnation)
