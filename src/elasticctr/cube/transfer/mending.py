"""Repairs between rollouts: brings replicas that missed one to the live version, brings back versions that prediction
servers pin, and removes what is no longer needed.

A pass never waits for a replica to finish: it sends a request and checks at the next pass.
"""

from __future__ import annotations

import contextlib
import time

from elasticctr.cube.shared.names import may_be_same
from elasticctr.cube.transfer.context import Context
from elasticctr.cube.transfer.instance import Instance
from elasticctr.cube.transfer.journal import TransferJournal
from elasticctr.errors import ElasticCTRError, NotFound, Unavailable
from elasticctr.obs.watch import Watch

_PIN_S = 3600.0
_LOOK_AGAIN_S = 0.2
_PINS_S = 1.0  # between two checks of the pins
_MOST_PINNED = 8  # pinned versions kept in memory, beside those of `resident`


class Mending:
    """Threads: one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pinned_s = 0.0
        # By replica that is behind: when to retry, the pause after that, and whether it needs a base.
        self._attempts: dict[str, tuple[float, float, bool]] = {}
        # By replica and pinned version: when to retry giving it back, and the pause after that.
        self._returns: dict[tuple[str, int], tuple[float, float]] = {}
        self._pins: set[int] = set()
        self._pins_read_s = 0.0

    def run(self, journal: TransferJournal) -> None:
        """REQUIRES: no rollout is in progress and a version is live."""
        context, now_s = self._context, time.monotonic()
        usable = context.fleet.usable()
        behind = [one for one in usable if not context.is_current(one, journal.live, journal.live_identity)]
        due = [one for one in behind if self._attempts.get(one.name, (0.0,))[0] <= now_s]
        if due:
            context.fleet.each(due, lambda one: self._mend(one, journal.live, journal.live_identity))
        for one in usable:
            if one not in behind:
                self._attempts.pop(one.name, None)
                one.trouble.pop(context.model, None)
        used = self._used(journal)
        keep = self._identities(resident(journal, context.settings.resident) | used)
        current = [one for one in usable if one not in behind]
        context.fleet.each(current, lambda one: self._give_back(one, {v: keep[v] for v in used}))
        surplus = {one.name: self._surplus(one, keep) for one in usable if one not in behind}
        crowded = [one for one in usable if surplus.get(one.name)]
        context.fleet.each(crowded, lambda one: self._retire(one, surplus[one.name]))
        if not self._pinned_s or now_s - self._pinned_s > _PIN_S / 4:
            self.pin(journal)

    def _mend(self, instance: Instance, version: int, identity: str) -> None:
        context, patience = self._context, self._context.settings.patience
        _, pause_s, needs_base = self._attempts.get(instance.name, (0.0, patience.first_pause_s, False))
        try:
            watch = Watch(context.settings.build.timeout_s)
            links = context.links(version, identity)
            steps = context.base(links, watch) if needs_base else context.steps(links, [instance], watch)
            self._check_latest_job(instance, version)
            instance.trouble.pop(context.model, None)
            if instance.post("/v1/prepare", context.request(steps, instance))["state"] == "ready":
                instance.post("/v1/activate", context.order(version, identity))
                instance.wake()
            else:
                self._attempts[instance.name] = (time.monotonic() + _LOOK_AGAIN_S, pause_s, needs_base)
        except ElasticCTRError as e:
            instance.trouble[context.model] = str(e)
            next_s = min(2 * pause_s, patience.longest_pause_s)
            self._attempts[instance.name] = (time.monotonic() + pause_s, next_s, needs_base or isinstance(e, NotFound))

    def _used(self, journal: TransferJournal) -> set[int]:
        """Versions pinned by servers that use this Cube's rows: the newest of those that were ever live."""
        now_s = time.monotonic()
        if now_s >= self._pins_read_s:
            self._pins_read_s = now_s + _PINS_S
            # Keep the last known pins: a repository that does not answer releases nothing.
            with contextlib.suppress(ElasticCTRError, OSError):
                self._pins = self._context.feed.pinned(self._context.model)
        outcomes = {one["version"]: one["outcome"] for one in journal.history}
        # A version missing from the history was live if it is older than the live one.
        used = [v for v in self._pins if outcomes.get(v, "done" if v < journal.live else "") == "done"]
        return set(sorted(used, reverse=True)[:_MOST_PINNED])

    def _give_back(self, instance: Instance, used: dict[int, str | None]) -> None:
        """Makes a replica load a pinned version that it no longer has."""
        context, holding = self._context, self._context.holding(instance)
        for version, identity in sorted(used.items(), reverse=True):
            found = holding.versions.get(version)
            is_there = found is not None and found.state in ("ready", "loading")
            if identity is None or (is_there and found is not None and may_be_same(found.identity, identity)):
                continue
            due_s, pause_s = self._returns.get((instance.name, version), (0.0, context.settings.patience.first_pause_s))
            if due_s > time.monotonic():
                continue
            next_s = min(2 * pause_s, context.settings.patience.longest_pause_s)
            self._returns[instance.name, version] = (time.monotonic() + pause_s, next_s)
            try:
                watch = Watch(context.settings.build.timeout_s)
                links = context.links(version, identity)
                instance.post("/v1/prepare", context.request(context.steps(links, [instance], watch), instance))
                instance.wake()
            except ElasticCTRError as e:
                instance.trouble[context.model] = f"version {version}, which is pinned: {e}"
            return

    def _check_latest_job(self, instance: Instance, version: int) -> None:
        """Reports a failed job once, so that it is retried only after a pause."""
        model = self._context.model
        if model in instance.trouble:
            return
        for job in instance.get("/v1/jobs")["jobs"]:
            if job["model"] == model and job["version"] == version and job["state"] == "failed":
                error = job["error"] or {}
                message = f"agent {instance.agent}: {error.get('message', 'failed')}"
                raise NotFound(message) if error.get("code") == "NotFound" else Unavailable(message)

    def _identities(self, versions: set[int]) -> dict[int, str | None]:
        """The identities the repository has under these numbers; None if a version is gone."""
        found: dict[int, str | None] = {}
        for version in versions:
            try:
                found[version] = self._context.feed.chain(self._context.model, version)[-1].identity
            except ElasticCTRError:
                found[version] = None
        return found

    def _surplus(self, instance: Instance, keep: dict[int, str | None]) -> list[int]:
        """What is not needed: other versions, and those whose contents are not the published ones."""
        holding = self._context.holding(instance)
        return [
            one.version
            for one in holding.versions.values()
            if (one.version not in keep or not may_be_same(one.identity, keep[one.version]))
            and one.version != holding.active
            and one.state != "loading"
            and not (one.is_retired and one.state == "stored")
        ]

    def _retire(self, instance: Instance, versions: list[int]) -> None:
        # Newest first: a delta is removed before what it depends on.
        for version in sorted(versions, reverse=True):
            instance.post("/v1/retire", self._context.order(version))
        instance.wake()

    def pin(self, journal: TransferJournal, *more: int) -> None:
        """Keeps the repository from pruning served versions."""
        context = self._context
        name = f"transfer-{context.fleet.owner}"[:64]
        self._pinned_s = time.monotonic()
        # A repository that cannot be written to can still be served from.
        with contextlib.suppress(ElasticCTRError):
            context.feed.pin(context.model, name, sorted(self._in_use(journal, *more)), _PIN_S)

    def prune(self, journal: TransferJournal) -> None:
        """Removes builds from this transfer's disk except the newest and those in use."""
        context = self._context
        newest = context.builds.versions(context.model)[-context.settings.build.keep :]
        context.builds.prune(context.model, {*self._in_use(journal), *newest})

    def forget_attempts(self) -> None:
        self._attempts.clear()
        self._returns.clear()

    def _in_use(self, journal: TransferJournal, *more: int) -> set[int]:
        versions: set[int] = set()
        for version in {*resident(journal, self._context.settings.resident), *more}:
            try:
                versions |= {link.version for link in self._context.feed.chain(self._context.model, version)}
            except ElasticCTRError:
                versions.add(version)
        return versions


def resident(journal: TransferJournal, count: int) -> set[int]:
    """Versions that stay in the servers' memory: the live one, the previous one and others live before."""
    kept = [journal.live, journal.previous]
    kept += [one["version"] for one in reversed(journal.history) if one["outcome"] == "done"]
    return set(list(dict.fromkeys(version for version in kept if version))[:count])
