"""What was published, and which version is to be served now: read from a repository's donefile.

A publish that arrives after one with a higher number does not turn anybody back: only a rollback does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elasticctr.errors import Corruption, NotFound
from elasticctr.publish import Event, Manifest, Repository
from elasticctr.publish.donefile import DONEFILE, last_in_effect

_RECHECK_POLLS = 10
_KEPT_CHAINS = 256


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event that says what to serve. `key` is different for each event."""

    key: str
    version: int
    identity: str
    is_rollback: bool


@dataclass(frozen=True, slots=True)
class Link:
    """One version of a chain; `identity` names its contents, `parent` 0 is a base."""

    version: int
    parent: int
    identity: str
    rows: int


class Feed(Protocol):
    def wanted(self, model: str) -> Announcement | None:
        """What is to be served now. Cheap while nothing changes."""
        ...

    def chain(self, model: str, version: int) -> list[Link]:
        """What a version is made of, base first. NotFound names a link that is missing."""
        ...

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        """Keeps versions from being pruned for a while."""
        ...


class RepositoryFeed:
    """Threads: one per model."""

    def __init__(self, url: str) -> None:
        self.repository = Repository(url)
        self._seen: dict[str, tuple[int, Announcement | None, bool]] = {}
        self._chains: dict[tuple[str, int], list[Link]] = {}
        self._polls = 0

    def wanted(self, model: str) -> Announcement | None:
        self._polls += 1
        try:
            size = self.repository.store.size(f"{model}/{DONEFILE}")
        except NotFound:
            return None
        seen = self._seen.get(model)
        # A line whose manifest was not there may become good without the file changing.
        if seen is not None and seen[0] == size and not (seen[2] and self._polls % _RECHECK_POLLS == 0):
            return seen[1]
        found, has_doubts = self._choose(model)
        self._seen[model] = (size, found, has_doubts)
        return found

    def chain(self, model: str, version: int) -> list[Link]:
        """Versions never change, so a chain is read once: over a network that is many requests."""
        known = self._chains.get((model, version))
        if known is None:
            events = {event.version: event for event in self.repository.events(model)}
            known = [_link(manifest, events) for manifest in self.repository.chain(model, version)]
            while len(self._chains) >= _KEPT_CHAINS:
                self._chains.pop(next(iter(self._chains)))
            self._chains[model, version] = known
        return known

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        self.repository.pin(model, name, versions, ttl_s)

    def _forget_changed(self, model: str, digests: dict[int, str]) -> None:
        """A repository that was made anew has other versions under the same numbers."""
        for (name, version), links in list(self._chains.items()):
            if name == model and digests.get(version) != links[-1].identity:
                self._chains.pop((name, version), None)

    def _choose(self, model: str) -> tuple[Announcement | None, bool]:
        events = self.repository.events(model)
        self._forget_changed(model, {event.version: event.manifest_sha256 for event in events})
        has_doubts = False
        while events:
            event = last_in_effect(events)
            try:
                self.repository.manifest(model, event.version)
                key = f"{event.number}:{event.event}:{event.version}:{event.manifest_sha256[:16]}"
                return Announcement(key, event.version, event.manifest_sha256, event.event == "rollback"), has_doubts
            except (NotFound, Corruption):
                has_doubts = True
                events.remove(event)
        return None, has_doubts


def _link(manifest: Manifest, events: dict[int, Event]) -> Link:
    event = events.get(manifest.version)
    if event is None:
        raise NotFound(f"version {manifest.version} of {manifest.model} was never announced")
    return Link(manifest.version, manifest.parent, event.manifest_sha256, manifest.rows + manifest.gone)
