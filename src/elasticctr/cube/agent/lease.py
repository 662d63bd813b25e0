"""Decides which transfer may change this agent. A lower epoch shuts out an old transfer that wakes up late.

A transfer takes the lease with an epoch above all it has seen, and names owner and epoch in each request. Until the
lease expires, another owner is refused; then any owner with a higher epoch may take it. The highest epoch granted is
on disk, so a restarted agent refuses the same transfers as before. A damaged note is set aside and replaced by an
epoch higher than any that can have been granted.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from elasticctr.cube.shared.epoch import read_epoch
from elasticctr.errors import DataError, FailedPrecondition
from elasticctr.storage.atomic import write_json

MAX_TTL_S = 300.0


class AgentLease:
    """Threads: any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._expires_s = 0.0
        note = read_epoch(path)
        self.owner, self.epoch = str(note.get("owner", "")), int(note.get("epoch", 0))
        self.address = str(note.get("address") or "")  # where the holder can be reached, as it said

    @property
    def left_s(self) -> float:
        return max(0.0, self._expires_s - time.monotonic())

    def take(self, owner: object, epoch: object, ttl_s: object, address: object = None) -> dict[str, Any]:
        """Grants or renews the lease and returns the previous owner. Raises FailedPrecondition while another owner
        holds it, or if it was granted with a higher epoch."""
        if not isinstance(owner, str) or not 1 <= len(owner) <= 64 or not owner.isprintable():
            raise DataError("a lease needs an owner, a name of at most 64 characters")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 1 <= epoch < 1 << 63:
            raise DataError("a lease needs an epoch, a whole number from 1")
        if isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= MAX_TTL_S:
            raise DataError(f"ttl_s must be above 0 and at most {MAX_TTL_S:g}")
        if address is not None and (not isinstance(address, str) or len(address) > 512 or not address.isprintable()):
            raise DataError("address must be the URL of the transfer that takes the lease")
        with self._lock:
            self._refuse_others(owner)
            if epoch < self.epoch or (epoch == self.epoch and owner != self.owner):
                raise self._outdated(owner, epoch)
            before = self.owner
            if (owner, epoch, address or "") != (self.owner, self.epoch, self.address):
                write_json(self._path, {"owner": owner, "epoch": epoch, "address": address})
                self.owner, self.epoch, self.address = owner, epoch, address or ""
            self._expires_s = time.monotonic() + ttl_s
            return {**self.describe(), "before": before}

    def release(self, owner: object) -> dict[str, Any]:
        with self._lock:
            if owner == self.owner:
                self._expires_s = 0.0
            return self.describe()

    def check(self, given: object) -> None:
        """Raises FailedPrecondition unless a request with this lease may change the agent."""
        with self._lock:
            if given is None:
                self._refuse_others("")
                return
            if not isinstance(given, dict):
                raise DataError('lease must be {"owner": …, "epoch": …}')
            owner, epoch = given.get("owner"), given.get("epoch")
            if owner != self.owner or epoch != self.epoch:
                raise self._outdated(str(owner), epoch)

    def describe(self) -> dict[str, Any]:
        return {"owner": self.owner, "epoch": self.epoch, "left_s": round(self.left_s, 3)}

    def _refuse_others(self, owner: str) -> None:
        if self.left_s > 0 and owner != self.owner:
            raise FailedPrecondition(
                f"transfer {self.owner!r} holds the lease of this agent (epoch {self.epoch}) for another "
                f"{self.left_s:.1f} s; stop that transfer, or wait until the lease expires"
            )

    def _outdated(self, owner: str, epoch: object) -> FailedPrecondition:
        return FailedPrecondition(
            f"transfer {owner!r} has epoch {epoch}, but {self.owner!r} was granted epoch {self.epoch}: "
            "take the lease again"
        )
