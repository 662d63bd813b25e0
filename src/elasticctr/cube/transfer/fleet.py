"""All agents of a transfer: the lease over them, calls to many at once, and their states.

A transfer acts only while it holds the lease of every agent that answers. If an agent has another owner, it stands by.
A transfer that slept and lost its lease has a lower epoch, so agents refuse it and it stands by too.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from elasticctr.cube.shared.epoch import read_epoch
from elasticctr.cube.transfer.instance import Instance
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import ElasticCTRError, FailedPrecondition
from elasticctr.net.client import Peer
from elasticctr.storage.atomic import write_json

T = TypeVar("T")


class AgentFleet:
    """Threads: any."""

    def __init__(self, settings: TransferSettings, owner: str, token: str | None, notes: Path) -> None:
        patience = settings.patience
        self.owner = owner
        self.instances = [
            Instance(s, r, one.agent, one.server, lambda url: _peer(url, token, settings))
            for s, shard in enumerate(settings.shards)
            for r, one in enumerate(shard)
        ]
        self.shards = len(settings.shards)
        self.address = ""  # where this transfer can be reached; agents send the secret to no other place
        self.takeovers = 0  # times another transfer was found to have been in charge
        self._refusals: dict[str, str] = {}  # by agent: who holds its lease; any entry makes this transfer stand by
        self._patience = patience
        self._path = notes / "epoch.json"
        self._lock = threading.Lock()
        self._leased_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(max_workers=min(64, 2 * len(self.instances)), thread_name_prefix="call")
        self.epoch = int(read_epoch(self._path).get("epoch", 0))

    def start(self) -> None:
        """Takes a new epoch and starts watching every agent."""
        self._raise_epoch(self.epoch + 1)
        for instance in self.instances:
            arguments = (self._patience.check_s, self._stop, self._keep_lease)
            thread = threading.Thread(target=instance.watch, args=arguments, name=f"watch-{instance.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Gives the lease back where possible, so that a successor need not wait."""
        self._stop.set()
        for instance in self.instances:
            instance.wake()
        usable = [instance for instance in self.instances if instance.snapshot.is_agent_up]
        self.each(usable, lambda instance: instance.post("/v1/release", {"owner": self.owner}))
        self._pool.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            thread.join(timeout=1.0)

    @property
    def holder(self) -> str:
        """Why this transfer stands by; empty if it does not."""
        return next(iter(list(self._refusals.values())), "")

    @property
    def is_leading(self) -> bool:
        """Whether every agent that answers has granted its lease with the current epoch."""
        return not self._refusals and all(one.name in self._leased_s for one in self.usable())

    def usable(self) -> list[Instance]:
        return [instance for instance in self.instances if instance.snapshot.is_usable]

    def each(self, instances: Iterable[Instance], call: Callable[[Instance], T]) -> dict[str, T | ElasticCTRError]:
        """Runs `call` on many at once. By name, what it returned or the error of the tree it raised."""

        def guarded(instance: Instance) -> T | ElasticCTRError:
            try:
                return call(instance)
            except ElasticCTRError as e:
                return e

        futures = {instance.name: self._pool.submit(guarded, instance) for instance in instances}
        return {name: future.result() for name, future in futures.items()}

    def refresh(self) -> None:
        """Checks every agent now. Does not wait for one that did not answer last time."""
        asked = [one for one in self.instances if one.snapshot.is_usable or not one.snapshot.at_s]
        self.each(asked, lambda instance: instance.refresh(self._patience.call_s + 1.0))

    def _keep_lease(self, instance: Instance) -> None:
        """Renews an agent's lease before it expires or, while standing by, checks whether it is free."""
        if self._refusals:
            self._stand_by(instance)
            return
        now_s = time.monotonic()
        if now_s - self._leased_s.get(instance.name, -1e9) < self._patience.lease_s / 4:
            return
        body: dict[str, Any] = {"owner": self.owner, "epoch": self.epoch, "ttl_s": self._patience.lease_s}
        body["address"] = self.address or None
        try:
            before = instance.post("/v1/lease", body).get("before")
            if before and before != self.owner:
                self.takeovers += 1
            if body["epoch"] == self.epoch:
                self._leased_s[instance.name] = now_s
        except FailedPrecondition as e:
            lease = instance.get("/v1/status").get("lease", {})
            if _is_of_another(lease, self.owner):
                self._refusals[instance.name] = str(e)
                return
            # Free, but granted to another transfer after us: now every agent needs a higher epoch.
            self._leased_s.clear()
            self._raise_epoch(int(lease.get("epoch", 0)) + 1)
            for one in self.instances:
                one.wake()

    def _stand_by(self, instance: Instance) -> None:
        """Takes no lease while another transfer works, and gives back its own."""
        self._leased_s.pop(instance.name, None)
        try:
            lease = instance.get("/v1/status").get("lease", {})
        except ElasticCTRError:
            self._refusals.pop(instance.name, None)
            raise
        if _is_of_another(lease, self.owner):
            self._refusals[instance.name] = f"transfer {lease.get('owner')!r} holds the lease of agent {instance.agent}"
            return
        if float(lease.get("left_s", 0)) > 0:
            instance.post("/v1/release", {"owner": self.owner})
        # Random, so that two that stand by do not keep trying at the same moment.
        time.sleep(random.uniform(0.0, 0.5 * self._patience.check_s))
        self._refusals.pop(instance.name, None)

    def _raise_epoch(self, epoch: int) -> None:
        with self._lock:
            if epoch > self.epoch:
                write_json(self._path, {"epoch": epoch})
                self.epoch = epoch


def _peer(url: str, token: str | None, settings: TransferSettings) -> Peer:
    return Peer(url, token, timeout_s=settings.patience.call_s, tls=settings.tls)


def _is_of_another(lease: dict[str, Any], owner: str) -> bool:
    return lease.get("owner") != owner and float(lease.get("left_s", 0)) > 0
