"""How the director's thread waits: it supervises the fleet, writes the run's log, and raises what ends the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from elasticctr.errors import Unavailable
from elasticctr.ps.coordinator.claim import Claim
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.fleet_supervisor import FleetSupervisor
from elasticctr.ps.coordinator.job_record import JobRecord

TICK_S = 0.05


class StopRequested(Exception):
    """The run is to be saved and to end."""


class MemoryShortage(Exception):
    """A pserver is about to run out of memory."""


class Waiting:
    """Used by the director's thread alone."""

    def __init__(self, coordinator: Coordinator, supervisor: FleetSupervisor, record: JobRecord, claim: Claim) -> None:
        self._at = coordinator
        self._supervisor = supervisor
        self._record = record
        self._claim = claim
        self.is_stopping = False  # a request to stop was raised, and is not raised twice

    def tick(self, *, is_serving: bool = True) -> None:
        """Raises what ends the run, ServerLost, StopRequested or MemoryShortage."""
        at = self._at
        self._claim.check()
        if at.failure is not None:
            raise at.failure
        if at.wants_stop.is_set() and not self.is_stopping:
            raise StopRequested
        if at.shortage is not None and not self.is_stopping:
            raise MemoryShortage
        with suppress(Unavailable):  # the journal, while the disk is full: unwritten lines are repeated
            self._supervisor.run(is_serving=is_serving)
        self._record.run()
        time.sleep(TICK_S)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Calls `is_so` under the lock."""
        while True:
            with self._at.lock:
                if is_so():
                    return
            self.tick()

    def phase(self, phase: str) -> None:
        """What the status shows from now on."""
        with self._at.lock:
            self._at.phase = phase
