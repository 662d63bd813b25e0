"""One agent as seen by transfer: calls to it, and its last known state, updated by a thread of its own.

Only that thread waits for an agent that hangs; the others use the last known state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticctr.cube.shared.names import may_be_same
from elasticctr.errors import DataError, Unavailable
from elasticctr.net.client import Peer


@dataclass(frozen=True, slots=True)
class ReplicaVersion:
    """One version on one replica. `state`: stored (on disk only), loading, ready, failed."""

    version: int
    parent: int  # as held: 0 if it was sent as a base
    state: str
    identity: str | None
    is_stored: bool
    is_retired: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """A model on one replica."""

    active: int = 0
    previous: int = 0
    versions: dict[int, ReplicaVersion] = field(default_factory=dict)

    def has(self, version: int, identity: str) -> bool:
        found = self.versions.get(version)
        return found is not None and found.is_stored and found.identity == identity and found.state != "failed"

    def has_whole(self, version: int, identity: str) -> bool:
        """Whether it has this version and, on its disk, the whole chain."""
        if not self.has(version, identity):
            return False
        below = self.versions[version].parent
        while below:
            found = self.versions.get(below)
            if found is None or not found.is_stored or found.state == "failed":
                return False
            below = found.parent
        return True

    def has_active_other_than(self, identities: Mapping[int, str]) -> bool:
        """Whether it answers from a version of one of these numbers that has another identity."""
        found, wanted = self.versions.get(self.active), identities.get(self.active)
        return found is not None and not may_be_same(found.identity, wanted)

    def depth(self, version: int) -> int:
        """The number of deltas in its chain, as held."""
        count, found = 0, self.versions.get(version)
        while found is not None and found.parent:
            count, found = count + 1, self.versions.get(found.parent)
        return count


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """`error` says why the agent or its server cannot be used; empty: both answer."""

    error: str = "not checked yet"
    is_agent_up: bool = False
    models: dict[str, Holding] = field(default_factory=dict)
    lease: dict[str, Any] = field(default_factory=dict)
    at_s: float = 0.0  # when the check began

    @property
    def is_usable(self) -> bool:
        return not self.error


class Instance:
    def __init__(self, shard: int, replica: int, agent: str, server: str, make_peer: Callable[[str], Peer]) -> None:
        self.shard = shard
        self.replica = replica
        self.name = f"{shard}/{replica}"
        self.agent = agent
        self.server = server
        self.snapshot = InstanceStatus()
        self.trouble: dict[str, str] = {}  # by model: why the last attempt failed
        self._peer = make_peer(agent)
        self._asked = threading.Event()
        self._looked = threading.Condition()

    def watch(self, check_s: float, stop: threading.Event, before: Callable[[Instance], None]) -> None:
        """Checks the agent repeatedly until stopped. `before` is called first each time."""
        while not stop.is_set():
            began_s = time.time()
            try:
                before(self)
                snapshot = parse_status(self._peer.get("/v1/status"), began_s)
            except Exception as e:
                # No answer of an agent may end this loop.
                snapshot = InstanceStatus(f"{type(e).__name__}: {e}", at_s=began_s)
            with self._looked:
                self.snapshot = snapshot
                self._looked.notify_all()
            self._asked.wait(check_s)
            self._asked.clear()

    def refresh(self, timeout_s: float) -> InstanceStatus:
        """The result of a check that began after this call, or the last one if none ends in time."""
        began_s = time.time()
        with self._looked:
            self._asked.set()
            self._looked.wait_for(lambda: self.snapshot.at_s >= began_s, timeout_s)
            return self.snapshot

    def get(self, path: str) -> dict[str, Any]:
        return self._peer.get(path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._peer.post(path, body)

    def wake(self) -> None:
        self._asked.set()

    def close(self) -> None:
        self._peer.close()


def parse_status(answer: dict[str, Any], at_s: float) -> InstanceStatus:
    """An agent's GET /v1/status."""
    try:
        server = answer["server"]
        error = "" if server["reachable"] else f"its server: {(server.get('error') or {}).get('message', 'no answer')}"
        models = {str(model["name"]): _parse_model(model) for model in answer["models"]}
        return InstanceStatus(error, True, models, dict(answer["lease"]), at_s)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DataError(f"not the status of a cube agent: {e!r}") from None


def _parse_model(model: dict[str, Any]) -> Holding:
    versions = {}
    for one in model["versions"]:
        number = int(one["version"])
        versions[number] = ReplicaVersion(
            number, int(one["parent"]), str(one["state"]), one["identity"], bool(one["stored"]), bool(one["retired"])
        )
    return Holding(int(model["active"]), int(model["previous"]), versions)


def why_unusable(instance: Instance) -> Unavailable:
    return Unavailable(f"agent {instance.agent} (shard {instance.shard}): {instance.snapshot.error}")
