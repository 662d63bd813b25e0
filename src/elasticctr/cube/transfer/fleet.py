"""All agents together: the lease over them, calls to many at once, and who is where.

A transfer acts only while it holds the lease of every agent that answers. One that finds another owner stands by; one
that was asleep and lost its lease is refused by the agents (its epoch is lower) and stands by too.
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
        self.address = ""  # where this transfer is to be found; the one place agents show the secret to
        self.takeovers = 0  # times agents were found that another transfer had fed meanwhile
        self._refusals: dict[str, str] = {}  # by agent: whose lease it has; any makes this transfer stand by
        self._patience = patience
        self._path = notes / "epoch.json"
        self._lock = threading.Lock()
        self._leased_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(max_workers=min(64, 2 * len(self.instances)), thread_name_prefix="call")
        self.epoch = int(read_epoch(self._path).get("epoch", 0))

    def start(self) -> None:
        """Takes an epoch of its own and begins to watch every agent."""
        self._raise_epoch(self.epoch + 1)
        for instance in self.instances:
            arguments = (self._patience.check_s, self._stop, self._keep_lease)
            thread = threading.Thread(target=instance.watch, args=arguments, name=f"watch-{instance.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Gives the lease back where that is possible, so that a successor need not wait."""
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
        """Why this transfer stands by; empty: it does not."""
        return next(iter(list(self._refusals.values())), "")

    @property
    def is_leading(self) -> bool:
        """Whether every agent that answers has granted its lease with the present epoch."""
        return not self._refusals and all(one.name in self._leased_s for one in self.usable())

    def usable(self) -> list[Instance]:
        return [instance for instance in self.instances if instance.snapshot.is_usable]

    def each(self, instances: Iterable[Instance], call: Callable[[Instance], T]) -> dict[str, T | ElasticCTRError]:
        """`call` on many at once: by name, what it returned or the error of the tree it raised."""

        def guarded(instance: Instance) -> T | ElasticCTRError:
            try:
                return call(instance)
            except ElasticCTRError as e:
                return e

        futures = {instance.name: self._pool.submit(guarded, instance) for instance in instances}
        return {name: future.result() for name, future in futures.items()}

    def refresh(self) -> None:
        """Looks at every agent now. One that did not answer the last time is not waited for."""
        asked = [one for one in self.instances if one.snapshot.is_usable or not one.snapshot.at_s]
        self.each(asked, lambda instance: instance.refresh(self._patience.call_s + 1.0))

    def _keep_lease(self, instance: Instance) -> None:
        """Renews the lease of one agent before it runs out; while standing by, looks whether it has become free."""
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
            # Free, but granted to somebody after us: only a higher epoch will do, and then everywhere.
            self._leased_s.clear()
            self._raise_epoch(int(lease.get("epoch", 0)) + 1)
            for one in self.instances:
                one.wake()

    def _stand_by(self, instance: Instance) -> None:
        """Takes nothing while another transfer works, and keeps nothing from it."""
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
        # Two that stand by must not step forward at the same moment again and again.
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
