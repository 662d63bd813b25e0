"""A repository of published versions, for those who read it: builders, transfers, servers, people.

    repository = Repository("s3://models/repo")
    live = repository.live("ctr")
    with repository.open_part("ctr", live.version, "sparse/main/part-00000.arrow") as file: ...

A file is trusted only if its manifest lists it, and a manifest only if the donefile has its digest. writer.py writes
versions, removal.py removes them, fsck.py finds and repairs damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from elasticctr.errors import Corruption, NotFound
from elasticctr.obs import console
from elasticctr.storage import Store, open_store
from elasticctr.versions.donefile import DONEFILE, DamagedLine, DonefileEvent, EventLog, last_in_effect, parse_donefile
from elasticctr.versions.manifest import MANIFEST, NAME, Manifest, check_name, parse_manifest

PINS = "pins"
CUBE_PIN = "cube"  # prefix of pins whose versions must stay in the Cube too
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Live:
    """The version to serve, and the event that says so."""

    version: int
    manifest: Manifest
    event: DonefileEvent
    previous: int  # live before it; 0 if none


class Repository:
    def __init__(self, url: str, store: Store | None = None) -> None:
        self.store = store or open_store(url)
        self.url = self.store.url
        self._told: set[tuple[str, tuple[DamagedLine, ...]]] = set()

    def models(self) -> list[str]:
        """The names of models with a donefile."""
        names = [name.rstrip("/") for name in self.store.list() if name.endswith("/")]
        return [name for name in names if NAME.fullmatch(name) and self.store.exists(f"{name}/{DONEFILE}")]

    def events(self, model: str, after: int = 0) -> list[DonefileEvent]:
        """The donefile's events in order, after line `after`; none without a donefile."""
        log = self.log(model)
        if log is None:
            return []
        if log.damaged and (model, log.damaged) not in self._told:
            self._told.add((model, log.damaged))
            lines = ", ".join(str(line.number) for line in log.damaged)
            console.warn(
                f"{self.url}/{model}/{DONEFILE}: line {lines} is damaged and passed over; "
                f"see elasticctr versions fsck {self.url} --model {model}"
            )
        return [event for event in log.events if event.number > after]

    def log(self, model: str) -> EventLog | None:
        """The donefile with its damaged lines; None if it certainly does not exist."""
        try:
            return parse_donefile(self.store.read_bytes(f"{check_name(model, 'model')}/{DONEFILE}"))
        except NotFound:
            return None

    def numbers(self, model: str) -> list[int]:
        """Numbers of all version directories, whatever they contain."""
        names = [name.rstrip("/") for name in self.store.list(check_name(model, "model")) if name.endswith("/")]
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def versions(self, model: str) -> list[Manifest]:
        """Announced versions that still exist and whose manifest is the announced one, oldest first."""
        return list(self.newest(model))[::-1]

    def newest(self, model: str) -> Iterator[Manifest]:
        """The same, newest first, read lazily."""
        events = self.events(model)
        for version in sorted({event.version for event in events}, reverse=True):
            with contextlib.suppress(NotFound, Corruption):
                yield self.read_manifest(model, version, events)

    def live(self, model: str) -> Live:
        """The version of the last event in effect whose manifest matches. NotFound if there is none."""
        events = self.events(model)
        current = self._last(model, events)
        if current is None:
            raise NotFound(f"{self.url}/{model}: no published version; make one with elasticctr publish")
        event, manifest = current
        before = self._last(model, [e for e in events if e.number < event.number and e.version != event.version])
        return Live(event.version, manifest, event, before[0].version if before else 0)

    def manifest(self, model: str, version: int) -> Manifest:
        """The manifest of an announced version. NotFound, or Corruption if it is not the one announced."""
        return self.read_manifest(model, version, self.events(model))

    def read_manifest(self, model: str, version: int, events: Sequence[DonefileEvent]) -> Manifest:
        """The same, by events already read."""
        announced = {event.manifest_sha256 for event in events if event.version == version}
        if not announced:
            raise NotFound(f"{self.url}/{model}: version {version} was never published")
        name = f"{model}/{version}/{MANIFEST}"
        try:
            data = self.store.read_bytes(name)
        except NotFound:
            raise NotFound(f"{self.url}/{model}: version {version} is gone; it was removed or pruned") from None
        if hashlib.sha256(data).hexdigest() not in announced:
            raise Corruption(f"{self.url}/{name}: is not the manifest that was announced; publish a new version")
        manifest = parse_manifest(data, f"{self.url}/{name}")
        if (manifest.model, manifest.version) != (model, version):
            raise Corruption(f"{self.url}/{name}: is the manifest of {manifest.model} version {manifest.version}")
        return manifest

    def chain(self, model: str, version: int) -> list[Manifest]:
        """The manifests a version is made of: its base, the deltas on it, and itself last."""
        events = self.events(model)
        last = self.read_manifest(model, version, events)
        return [*(self.read_manifest(model, below, events) for below in last.chain), last]

    def open_part(self, model: str, version: int, name: str) -> IO[bytes]:
        """A file of a version, seekable. Its bytes are not checked here but by `verify` and by those who copy it."""
        return self.store.open(f"{check_name(model, 'model')}/{version}/{name}")

    def read_file(self, model: str, version: int, name: str) -> bytes:
        """A small file of a version, checked against its manifest."""
        entry = next((file for file in self.manifest(model, version).files if file.name == name), None)
        if entry is None:
            raise NotFound(f"{self.url}/{model}/{version}: its manifest lists no {name}")
        data = self.store.read_bytes(f"{model}/{version}/{name}")
        if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
            raise Corruption(f"{self.url}/{model}/{version}/{name}: does not match its manifest; publish again")
        return data

    def pin(self, model: str, name: str, versions: Sequence[int], ttl_s: float) -> None:
        """Keeps versions and their chains from being pruned for `ttl_s` seconds. Renew it while in use."""
        pin = {"versions": list(versions), "expires": time.time() + ttl_s}
        self.store.write_bytes(f"{check_name(model, 'model')}/{PINS}/{check_name(name, 'pin')}.json", _json(pin))

    def unpin(self, model: str, name: str) -> None:
        self.store.delete(f"{check_name(model, 'model')}/{PINS}/{check_name(name, 'pin')}.json")

    def pinned(self, model: str) -> dict[int, list[str]]:
        """Versions with an unexpired pin, and who pins them."""
        return self.read_pins(model)[0]

    def read_pins(self, model: str) -> tuple[dict[int, list[str]], list[str]]:
        """The same, and the names of unreadable pins, which may protect any version."""
        held: dict[int, list[str]] = {}
        unreadable = []
        for file in self.store.list(f"{check_name(model, 'model')}/{PINS}"):
            try:
                pin = json.loads(self.store.read_bytes(f"{model}/{PINS}/{file}"))
                versions = [int(version) for version in pin["versions"]] if pin["expires"] > time.time() else []
            except NotFound:
                continue
            except (ValueError, KeyError, TypeError, RecursionError):
                unreadable.append(file)
                continue
            for version in versions:
                held.setdefault(version, []).append(file.removesuffix(".json"))
        return held, unreadable

    def _last(self, model: str, events: Sequence[DonefileEvent]) -> tuple[DonefileEvent, Manifest] | None:
        """The last event in effect whose manifest exists and matches."""
        rest = list(events)
        while rest:
            event = last_in_effect(rest)
            manifest = self._read(model, event)
            if manifest is not None:
                return event, manifest
            rest.remove(event)
        return None

    def _read(self, model: str, event: DonefileEvent) -> Manifest | None:
        try:
            data = self.store.read_bytes(f"{model}/{event.version}/{MANIFEST}")
            if hashlib.sha256(data).hexdigest() != event.manifest_sha256:
                return None
            return parse_manifest(data, f"{self.url}/{model}/{event.version}/{MANIFEST}")
        except (NotFound, Corruption):
            return None


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
