"""Decides what may be removed from a repository, and removes it. Nothing else does either.

    with PublisherLease(repository.store, "ctr") as lease:
        carry_out(repository, plan_removal(repository, "ctr", keep=5), lease)

A plan lists every directory of a model, whether it goes, and why. Never removed: the live version and the one live
before it, pinned versions, the chains of versions that stay, anything younger than a lease, and any version with a
manifest but no line in the donefile. If the donefile or a pin cannot be read, nothing is removed at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition, NotFound, Unavailable
from elasticctr.versions.donefile import DONEFILE, DonefileEvent
from elasticctr.versions.lease import TTL_S, PublisherLease
from elasticctr.versions.manifest import MANIFEST, Manifest, parse_manifest
from elasticctr.versions.repository import PINS, Repository

REMOVING = "removing"  # marks a directory whose removal has begun; deleted last


@dataclass(frozen=True, slots=True)
class Fate:
    version: int
    goes: bool
    why: str


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    model: str
    fates: tuple[Fate, ...]

    @property
    def going(self) -> list[int]:
        return [fate.version for fate in self.fates if fate.goes]


def prune(repository: Repository, model: str, keep: int, *, dry_run: bool = False) -> RemovalPlan:
    """Removes versions past the newest `keep` that need not stay. The donefile keeps its lines."""
    if dry_run:
        return plan_removal(repository, model, keep)
    with PublisherLease(repository.store, model) as lease:
        plan = plan_removal(repository, model, keep)
        carry_out(repository, plan, lease)
    return plan


def carry_out(repository: Repository, plan: RemovalPlan, lease: PublisherLease) -> None:
    """Removes deltas before what they depend on. A partly removed version is marked and no longer counts as one."""
    store = repository.store
    for version in sorted(plan.going, reverse=True):
        lease.renew()
        place = f"{plan.model}/{version}"
        store.write_bytes(f"{place}/{REMOVING}", b"")
        store.delete(f"{place}/{MANIFEST}")
        for name in store.list(place):
            if name.endswith("/"):
                store.delete_tree(f"{place}/{name[:-1]}")
            elif name != REMOVING:
                store.delete(f"{place}/{name}")
        store.delete_tree(place)
    store.sweep(plan.model)


def plan_removal(
    repository: Repository, model: str, keep: int | None = None, *, young_s: float = TTL_S, now: float | None = None
) -> RemovalPlan:
    """What goes and what stays, and why. Without `keep` only remains of killed publishers and removals may go.

    FailedPrecondition if the donefile is lost or damaged or a pin cannot be read; Unavailable if the store does not
    answer. Removes nothing.
    """
    return _Planner(repository, model, young_s, time.time() if now is None else now).plan(keep)


class _Planner:
    def __init__(self, repository: Repository, model: str, young_s: float, now: float) -> None:
        self._repository, self._model, self._young_s, self._now = repository, model, young_s, now
        self._numbers = repository.numbers(model)
        self._names = {version: set(repository.store.list(f"{model}/{version}")) for version in self._numbers}
        self._events = self._read_events()
        self._announced = {event.version for event in self._events}
        self._pins = self._read_pins()
        self._manifests: dict[int, Manifest] = {}
        self._stays: dict[int, str] = {}
        self._goes: dict[int, str] = {}

    def plan(self, keep: int | None) -> RemovalPlan:
        self._judge_remains()
        if keep is None:
            for version in self._numbers:
                if version not in self._goes:
                    self._stays.setdefault(version, "published")
        else:
            self._judge_versions(keep)
        self._keep_what_others_stand_on()
        fates = [Fate(v, v not in self._stays, self._stays.get(v) or self._goes[v]) for v in self._numbers]
        return RemovalPlan(self._model, tuple(fates))

    def _judge_remains(self) -> None:
        """Judges directories that are not complete, announced versions."""
        for version, names in self._names.items():
            if REMOVING in names:
                self._goes[version] = "its removal has begun"
            elif version not in self._announced:
                self._judge_unannounced(version, has_manifest=MANIFEST in names)
            elif MANIFEST not in names:
                self._stays[version] = f"announced, but its {MANIFEST} is gone; see elasticctr versions fsck"

    def _judge_unannounced(self, version: int, has_manifest: bool) -> None:
        if has_manifest:
            self._stays[version] = "complete, but never announced; see elasticctr versions fsck"
        elif version in self._pins:
            self._stays[version] = _pinned_by(self._pins[version])
        elif self._is_young(f"{self._model}/{version}"):
            self._stays[version] = f"never announced, but written to in the last {self._young_s / 60:.0f} minutes"
        else:
            self._goes[version] = "left by a publisher that did not finish"

    def _judge_versions(self, keep: int) -> None:
        """Judges announced versions."""
        whole = []
        for version in self._numbers:
            if version in self._goes or MANIFEST not in self._names[version]:
                continue
            if version not in self._announced:
                self._read_manifest(version)
                continue
            try:
                self._manifests[version] = self._repository.read_manifest(self._model, version, self._events)
                whole.append(version)
            except (NotFound, Corruption, FailedPrecondition):
                self._stays[version] = f"its {MANIFEST} is not the announced one; see elasticctr versions fsck"
        for version in whole[-keep:] if keep > 0 else []:
            self._stays[version] = f"among the newest {keep}"
        for version, names in self._pins.items():
            self._stays[version] = _pinned_by(names)
        try:
            live = self._repository.live(self._model)
            self._stays |= {live.previous: "live before", live.version: "live"}
        except NotFound:
            pass
        self._keep_what_others_stand_on()
        for version in whole:
            if version not in self._stays:
                if self._is_young(f"{self._model}/{version}/{MANIFEST}"):
                    self._stays[version] = f"published in the last {self._young_s / 60:.0f} minutes"
                else:
                    self._goes[version] = f"past the newest {keep}, and nobody uses it"

    def _keep_what_others_stand_on(self) -> None:
        parents: dict[int, set[int]] = {}
        for event in self._events:
            parents.setdefault(event.version, set()).update(p for p in (event.parent, event.base) if p != event.version)
        for version in sorted(self._stays, reverse=True):
            manifest = self._manifests.get(version)
            below = set() if manifest is None else set(manifest.chain)
            for other in below | _closure(version, parents):
                if other in self._names and other not in self._stays:
                    self._stays[other] = f"version {version} depends on it"

    def _read_events(self) -> tuple[DonefileEvent, ...]:
        where = f"{self._repository.url}/{self._model}/{DONEFILE}"
        try:
            log = self._repository.log(self._model)
        except Unavailable:
            raise
        except ElasticCTRError as e:
            raise self._refuse(f"{where} cannot be read: {e}") from None
        if log is None:
            if any(MANIFEST in names for names in self._names.values()):
                raise self._refuse(f"{where} is lost, but there are versions")
            return ()
        if log.damaged:
            lines = ", ".join(f"{line.number} ({line.why})" for line in log.damaged)
            raise self._refuse(f"{where} has damaged lines: {lines}")
        return log.events

    def _read_pins(self) -> dict[int, list[str]]:
        pins, unreadable = self._repository.read_pins(self._model)
        if unreadable:
            place = f"{self._repository.url}/{self._model}/{PINS}"
            raise self._refuse(f"{place}/{unreadable[0]} cannot be read, so what it protects is not known")
        return pins

    def _refuse(self, what: str) -> FailedPrecondition:
        return FailedPrecondition(
            f"{what}; nothing is removed. See elasticctr versions fsck {self._repository.url} --model {self._model}"
        )

    def _read_manifest(self, version: int) -> None:
        """Reads a manifest for its chain."""
        try:
            name = f"{self._model}/{version}/{MANIFEST}"
            self._manifests[version] = parse_manifest(self._repository.store.read_bytes(name), name)
        except (NotFound, Corruption, FailedPrecondition):
            pass

    def _is_young(self, name: str) -> bool:
        """Whether something was written less than a lease ago, or at an unknown time."""
        try:
            written_s = self._repository.store.modified(name)
        except NotFound:
            return True
        return written_s is None or self._now - written_s < self._young_s


def _closure(version: int, parents: dict[int, set[int]]) -> set[int]:
    """Everything a version depends on, by the lines of the donefile."""
    found: set[int] = set()
    rest = list(parents.get(version, ()))
    while rest:
        below = rest.pop()
        if below > 0 and below not in found:
            found.add(below)
            rest += parents.get(below, ())
    return found


def _pinned_by(names: list[str]) -> str:
    return f"pinned by {', '.join(names)}"
