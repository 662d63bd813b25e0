"""Phase one: brings a version to every replica, in parallel, until enough have it or that has become impossible.

Nothing here changes any server's answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from elasticctr.cube.transfer.fleet import AgentFleet
from elasticctr.cube.transfer.instance import Instance, why_unusable
from elasticctr.cube.transfer.settings import PatienceSettings, RequireSettings
from elasticctr.errors import (
    DeadlineExceeded,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from elasticctr.net.answers import error_named
from elasticctr.obs.watch import Watch

_POLL_S = 0.02
_SLOW_POLL_S = 0.3
# Errors that may be gone at the next attempt. All others are the version's fault and permanent.
_PASSING = (Unavailable, DeadlineExceeded, FailedPrecondition, InternalError, Unauthorized)

Request = Callable[[Instance, bool], dict[str, Any]]


class Preparation:
    """Prepares one version. `request(instance, compacted)` makes the body of a prepare; it may build."""

    def __init__(
        self, fleet: AgentFleet, request: Request, require: RequireSettings, patience: PatienceSettings, watch: Watch
    ) -> None:
        self._fleet = fleet
        self._request = request
        self._require = require
        self._patience = patience
        self._watch = watch
        self._changed = threading.Condition()
        self.ready: set[str] = set()
        self.refused: dict[str, ElasticCTRError] = {}
        self.failing: dict[str, ElasticCTRError] = {}

    def run(self) -> list[str]:
        """The names of the replicas that have it, once there are enough.

        Raises a replica's refusal if too few of its shard can ever have it, Unavailable if too few have it in time.
        """
        self._watch.check()
        for instance in self._fleet.instances:
            threading.Thread(target=self._work, args=(instance,), name=f"prepare-{instance.name}", daemon=True).start()
        enough_since_s = 0.0
        try:
            while True:
                with self._changed:
                    if len(self.ready) == len(self._fleet.instances):
                        return sorted(self.ready)
                    self._refuse_impossible()
                    if self._is_enough():
                        now_s = time.monotonic()
                        enough_since_s = enough_since_s or now_s
                        is_settled = len(self.ready) + len(self.refused) == len(self._fleet.instances)
                        if is_settled or now_s - enough_since_s >= self._require.straggler_s:
                            return sorted(self.ready)
                    self._changed.wait(0.05)
                try:
                    self._watch.check()
                except DeadlineExceeded:
                    raise Unavailable(f"too few replicas were ready in time: {self._describe()}") from None
        finally:
            self._watch.cancel()

    def _is_enough(self) -> bool:
        if self._require.policy == "all":
            return len(self.ready) == len(self._fleet.instances)
        return all(
            sum(one.name in self.ready for one in self._of(shard)) >= self._require.min_replicas
            for shard in range(self._fleet.shards)
        )

    def _refuse_impossible(self) -> None:
        for shard in range(self._fleet.shards):
            members = self._of(shard)
            needed = len(members) if self._require.policy == "all" else self._require.min_replicas
            refusals = [self.refused[one.name] for one in members if one.name in self.refused]
            if len(members) - len(refusals) < needed:
                raise refusals[-1]

    def _of(self, shard: int) -> list[Instance]:
        return [instance for instance in self._fleet.instances if instance.shard == shard]

    def _describe(self) -> str:
        waiting = [one.name for one in self._fleet.instances if one.name not in self.ready]
        reasons = [f"{name}: {self.refused.get(name) or self.failing.get(name) or 'no answer'}" for name in waiting]
        return "; ".join(reasons[:4]) + (f" and {len(reasons) - 4} more" if len(reasons) > 4 else "")

    def _work(self, instance: Instance) -> None:
        """Works until the replica has the version, refuses it for good, or the result is no longer needed."""
        pause_s, compacted = self._patience.first_pause_s, False
        while True:
            try:
                self._watch.check()
                self._prepare(instance, compacted)
                self._tell(instance, None)
                return
            except NotFound as e:
                # It lacks what the deltas depend on: a base depends on nothing.
                if compacted:
                    self._tell(instance, e)
                    return
                compacted = True
            except _PASSING as e:
                self.failing[instance.name] = e
                try:
                    self._watch.pause(pause_s)
                except ElasticCTRError:
                    return
                pause_s = min(2 * pause_s, self._patience.longest_pause_s)
            except ElasticCTRError as e:
                self._tell(instance, e)
                return
            except Exception as e:
                self._tell(instance, InternalError(f"{type(e).__name__}: {e}"))
                return

    def _prepare(self, instance: Instance, compacted: bool) -> None:
        if not instance.snapshot.is_usable and not instance.refresh(self._patience.call_s + 1).is_usable:
            raise why_unusable(instance)
        body = self._request(instance, compacted)
        job = instance.post("/v1/prepare", body)
        pause_s = _POLL_S
        while job["state"] != "ready":
            if job["state"] == "failed":
                error = job["error"] or {}
                raise error_named(f"{error.get('code')}: {error.get('message')}", f"agent {instance.agent}")
            self._watch.pause(pause_s)
            pause_s = min(1.3 * pause_s, _SLOW_POLL_S)
            jobs = instance.get("/v1/jobs")["jobs"]
            found = [one for one in jobs if (one["model"], one["version"]) == (body["model"], body["version"])]
            if not found:
                raise Unavailable(f"agent {instance.agent} is no longer preparing it; was it restarted?")
            job = found[0]

    def _tell(self, instance: Instance, refusal: ElasticCTRError | None) -> None:
        with self._changed:
            if refusal is None:
                self.ready.add(instance.name)
            else:
                self.refused[instance.name] = refusal
            self._changed.notify_all()
