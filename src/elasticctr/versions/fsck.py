"""Finds what is damaged, missing or left behind in a repository, and rebuilds a lost or damaged donefile.

For `elasticctr versions fsck`. Reads only, but for `rebuild_donefile`, which writes that one file and keeps the old one
aside. Whether rows are in their places and scores as promised is verification.py's business.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from elasticctr.errors import Corruption, FailedPrecondition, NotFound
from elasticctr.versions.donefile import DONEFILE, DonefileEvent, EventLog, last_in_effect, parse_donefile
from elasticctr.versions.lease import LOCK, TTL_S, PublisherLease, describe_holder, read_lock
from elasticctr.versions.manifest import MANIFEST, NAME, FileEntry, Manifest, parse_manifest
from elasticctr.versions.removal import REMOVING
from elasticctr.versions.repository import PINS, Repository
from elasticctr.versions.verification import check_digest

Kind = Literal["donefile", "line", "pin", "lock", "orphan", "leftover", "gap", "chain", "manifest", "file"]
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One irregularity. `is_broken` means lost or damaged; others are only worth knowing."""

    model: str
    kind: Kind
    version: int  # 0: of no version
    what: str
    is_broken: bool = True


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The outcome of rebuilding a donefile."""

    kept: int  # lines
    added: tuple[int, ...]  # versions whose line was restored
    dropped: int  # damaged lines
    aside: str  # name of the kept old file; '' if there was none


def find_models(repository: Repository) -> list[str]:
    """All models, including those whose donefile is lost."""
    names = [name.rstrip("/") for name in repository.store.list() if name.endswith("/")]
    return [
        name
        for name in names
        if NAME.fullmatch(name) and (repository.store.exists(f"{name}/{DONEFILE}") or repository.numbers(name))
    ]


def check_model(
    repository: Repository, model: str, *, checksums: bool = False, advance: Advance = lambda count: None
) -> list[Finding]:
    """Everything wrong with a model. `advance` is called with the versions checked or, with `checksums`, the bytes."""
    return _Check(repository, model, checksums, advance).run()


class _Check:
    def __init__(self, repository: Repository, model: str, checksums: bool, advance: Advance) -> None:
        self._repository, self._model = repository, model
        self._checksums, self._advance = checksums, advance
        self._found: list[Finding] = []
        self._numbers = repository.numbers(model)
        self._manifests: dict[int, Manifest] = {}

    def run(self) -> list[Finding]:
        log = self._check_log()
        self._check_pins()
        self._check_lock()
        for version in self._numbers:
            self._check_directory(version, log.events)
        for manifest in self._manifests.values():
            missing = [below for below in manifest.chain if below not in self._manifests]
            if missing:
                shown = ", ".join(str(below) for below in missing)
                self._tell("chain", manifest.version, f"depends on version {shown}, which is missing or damaged")
        self._check_wanted(log.events)
        return self._found

    def _check_log(self) -> EventLog:
        log = self._repository.log(self._model)
        if log is None:
            has_versions = any(self._exists(version, MANIFEST) for version in self._numbers)
            self._tell("donefile", 0, "there is no donefile", is_broken=has_versions)
            return EventLog((), (), False)
        for line in log.damaged:
            self._tell("line", 0, f"line {line.number} of the donefile: {line.why}")
        if log.is_unfinished:
            self._tell("line", 0, "the last line of the donefile is unfinished; the next publisher closes it", False)
        return log

    def _check_pins(self) -> None:
        for file in self._repository.read_pins(self._model)[1]:
            self._tell("pin", 0, f"{PINS}/{file} cannot be read; nothing is removed while it exists")

    def _check_lock(self) -> None:
        raw = read_lock(self._repository.store, self._model)
        if raw is not None:
            holder = describe_holder(self._repository.store, self._model, raw)
            self._tell("lock", 0, holder or f"{LOCK} is stale; the next publisher breaks it", is_broken=False)

    def _check_directory(self, version: int, events: tuple[DonefileEvent, ...]) -> None:
        is_announced = any(event.version == version for event in events)
        if self._exists(version, REMOVING):
            self._tell(
                "leftover", version, "its removal is unfinished; the next publisher completes it", is_broken=False
            )
        elif not self._exists(version, MANIFEST):
            if is_announced:
                self._tell("gap", version, f"is announced, but its {MANIFEST} is gone")
            else:
                what = f"never finished; a publisher removes it {TTL_S / 60:.0f} minutes after its last write"
                self._tell("leftover", version, what, is_broken=False)
        elif is_announced:
            try:
                manifest = self._repository.read_manifest(self._model, version, events)
            except (Corruption, NotFound, FailedPrecondition) as e:
                self._tell("manifest", version, str(e))
            else:
                self._check_files(manifest)
        else:
            self._tell("orphan", version, "is complete but was never announced; --rebuild announces it")
            try:
                self._check_files(_read_manifest(self._repository, self._model, version))
            except (Corruption, NotFound, FailedPrecondition) as e:
                self._tell("manifest", version, str(e))
        if not self._checksums:
            self._advance(1)

    def _check_files(self, manifest: Manifest) -> None:
        self._manifests[manifest.version] = manifest
        for file in manifest.files:
            try:
                check_file(self._repository, manifest, file, self._checksums)
            except Corruption as e:
                self._tell("file", manifest.version, str(e))
            if self._checksums:
                self._advance(file.bytes)

    def _check_wanted(self, events: tuple[DonefileEvent, ...]) -> None:
        """Old versions may be gone; the one to be served may not."""
        if events:
            event = last_in_effect(events)
            if event.version not in self._numbers:
                self._tell("gap", event.version, "should be served but is gone; an older version is served instead")

    def _exists(self, version: int, name: str) -> bool:
        return self._repository.store.exists(f"{self._model}/{version}/{name}")

    def _tell(self, kind: Kind, version: int, what: str, is_broken: bool = True) -> None:
        self._found.append(Finding(self._model, kind, version, what, is_broken))


def check_file(repository: Repository, manifest: Manifest, file: FileEntry, checksums: bool) -> None:
    """Raises Corruption if a file is missing or differs from its manifest."""
    if checksums:
        check_digest(repository, manifest, file)
        return
    name = f"{manifest.model}/{manifest.version}/{file.name}"
    try:
        size = repository.store.size(name)
    except NotFound:
        raise Corruption(f"{repository.url}/{name}: is in the manifest but missing") from None
    if size != file.bytes:
        raise Corruption(f"{repository.url}/{name}: {size} bytes, the manifest says {file.bytes}")


def rebuild_donefile(repository: Repository, model: str) -> Rebuilt | None:
    """Keeps the good lines and adds one for every complete version without a line; None if there is nothing to do.

    A rollback whose line is lost is not restored: the newest version is live then.
    """
    store, name = repository.store, f"{model}/{DONEFILE}"
    with PublisherLease(store, model) as lease:
        try:
            old: bytes | None = store.read_bytes(name)
        except NotFound:
            old = None
        log = parse_donefile(old or b"")
        added = _find_unannounced(repository, model, log.events)
        if not added and not log.damaged:
            return None
        lines = (old or b"").split(b"\n")
        merged = [(event.time, lines[event.number - 1] + b"\n") for event in log.events]
        for event in added:
            # In its old place, after its predecessors, so that a later rollback stays in effect.
            later = next((i for i, (time_s, _) in enumerate(merged) if time_s > event.time), len(merged))
            merged.insert(later, (event.time, event.line()))
        new = b"".join(line for _, line in merged)
        if old is not None and len(new) == len(old):
            new += b"\n"  # readers notice a change by the size
        lease.renew()
        aside = "" if old is None else _put_aside(repository, name, old)
        if not (store.write_new(name, new) if old is None else store.replace(name, new, old)):
            raise FailedPrecondition(f"{repository.url}/{name}: another process wrote it meanwhile; try again")
    return Rebuilt(len(log.events), tuple(event.version for event in added), len(log.damaged), aside)


def _put_aside(repository: Repository, name: str, old: bytes) -> str:
    aside = f"{name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    for suffix in ("", *(f"-{number}" for number in range(1, 100))):
        if repository.store.write_new(aside + suffix, old):
            return f"{repository.url}/{aside}{suffix}"
    raise FailedPrecondition(f"{repository.url}/{aside}: a hundred of these already exist; find out why first")


def _find_unannounced(repository: Repository, model: str, events: tuple[DonefileEvent, ...]) -> list[DonefileEvent]:
    """Events for complete versions with complete chains but no line, oldest first."""
    announced = {event.version for event in events}
    usable: set[int] = set()
    found = []
    for version in repository.numbers(model):
        try:
            if repository.store.exists(f"{model}/{version}/{REMOVING}"):
                continue
            if version in announced:
                repository.read_manifest(model, version, events)
                usable.add(version)
                continue
            manifest = _read_manifest(repository, model, version)
            if not usable.issuperset(manifest.chain):
                continue
            for file in manifest.files:
                check_file(repository, manifest, file, checksums=False)
            data = repository.store.read_bytes(f"{model}/{version}/{MANIFEST}")
        except (NotFound, Corruption, FailedPrecondition):
            continue
        usable.add(version)
        digest = hashlib.sha256(data).hexdigest()
        found.append(
            DonefileEvent(
                0, "publish", version, manifest.kind, manifest.parent, manifest.base, digest, manifest.created
            )
        )
    return found


def _read_manifest(repository: Repository, model: str, version: int) -> Manifest:
    """The manifest of a version without a line; only its shape can be checked."""
    name = f"{model}/{version}/{MANIFEST}"
    manifest = parse_manifest(repository.store.read_bytes(name), f"{repository.url}/{name}")
    if (manifest.model, manifest.version) != (model, version):
        raise Corruption(f"{repository.url}/{name}: is the manifest of {manifest.model} version {manifest.version}")
    return manifest
