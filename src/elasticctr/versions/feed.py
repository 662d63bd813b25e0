"""Reads from a repository's donefile what was published and which version to serve now.

A publish after one with a higher number has no effect: only a rollback goes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from elasticctr.errors import Corruption, NotFound
from elasticctr.versions import DonefileEvent, Manifest, Repository
from elasticctr.versions.donefile import DONEFILE, last_in_effect
from elasticctr.versions.repository import CUBE_PIN

_RECHECK_POLLS = 10
_KEPT_CHAINS = 256


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event that says what to serve. `key` is unique to each event."""

    key: str
    version: int
    identity: str
    is_rollback: bool


@dataclass(frozen=True, slots=True)
class Link:
    """One version of a chain; `identity` names its contents, `parent` 0 is a base. `chain` names the contents of its
    whole chain."""

    version: int
    parent: int
    identity: str
    rows: int
    parent_identity: str = ""
    chain: str = ""


class Feed(Protocol):
    def wanted(self, model: str) -> Announcement | None:
        """What to serve now. Cheap while nothing changes."""
        ...

    def chain(self, model: str, version: int) -> list[Link]:
        """The versions of a chain, base first. NotFound names a missing one."""
        ...

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        """Keeps versions from being pruned for a while."""
        ...

    def pinned(self, model: str) -> set[int]:
        """Versions that prediction servers use with this Cube's rows, or are about to."""
        ...


class RepositoryFeed:
    """Threads: one per model."""

    def __init__(self, url: str) -> None:
        self.repository = Repository(url)
        self._seen: dict[str, tuple[int, Announcement | None]] = {}
        self._chains: dict[tuple[str, int], list[Link]] = {}
        self._polls = 0

    def wanted(self, model: str) -> Announcement | None:
        self._polls += 1
        try:
            size = self.repository.store.size(f"{model}/{DONEFILE}")
        except NotFound:
            return None
        seen = self._seen.get(model)
        # A line may become valid without a change of the file, when its manifest appears; and a repository restored
        # from a backup may have a different file of the same size.
        if seen is not None and seen[0] == size and self._polls % _RECHECK_POLLS:
            return seen[1]
        found = self._choose(model)
        self._seen[model] = (size, found)
        return found

    def chain(self, model: str, version: int) -> list[Link]:
        """Versions never change, so a chain is read once; it takes many requests over a network."""
        known = self._chains.get((model, version))
        if known is None:
            known = read_links(self.repository, model, version)
            while len(self._chains) >= _KEPT_CHAINS:
                self._chains.pop(next(iter(self._chains)))
            self._chains[model, version] = known
        return known

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        self.repository.pin(model, name, versions, ttl_s)

    def pinned(self, model: str) -> set[int]:
        pins = self.repository.pinned(model)
        return {version for version, names in pins.items() if any(name.startswith(f"{CUBE_PIN}-") for name in names)}

    def _forget_changed(self, model: str, digests: dict[int, str]) -> None:
        """Forgets chains if the repository now has other versions under the same numbers."""
        for (name, version), links in list(self._chains.items()):
            if name == model and any(digests.get(link.version) != link.identity for link in links):
                self._chains.pop((name, version), None)

    def _choose(self, model: str) -> Announcement | None:
        events = self.repository.events(model)
        self._forget_changed(model, {event.version: event.manifest_sha256 for event in events})
        while events:
            event = last_in_effect(events)
            try:
                self.repository.manifest(model, event.version)
                key = f"{event.number}:{event.event}:{event.version}:{event.manifest_sha256[:16]}"
                return Announcement(key, event.version, event.manifest_sha256, event.event == "rollback")
            except (NotFound, Corruption):
                events.remove(event)
        return None


def read_links(repository: Repository, model: str, version: int) -> list[Link]:
    """A version's chain, as the repository has it now."""
    events = {event.version: event for event in repository.events(model)}
    return join_links(_link(manifest, events) for manifest in repository.chain(model, version))


def join_links(links: Iterable[Link]) -> list[Link]:
    """The links of a chain, base first, each with what it depends on."""
    joined: list[Link] = []
    for link in links:
        below = joined[-1] if joined else Link(0, 0, "", 0)
        chain = hashlib.sha256(f"{below.chain}/{link.identity}".encode()).hexdigest()
        joined.append(replace(link, parent_identity=below.identity, chain=chain))
    return joined


def _link(manifest: Manifest, events: dict[int, DonefileEvent]) -> Link:
    event = events.get(manifest.version)
    if event is None:
        raise NotFound(f"version {manifest.version} of {manifest.model} was never announced")
    return Link(manifest.version, manifest.parent, event.manifest_sha256, manifest.rows + manifest.gone)
