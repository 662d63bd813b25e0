"""The versions on an agent's disk, where its server reads them. Versions appear and disappear as a whole.

    <data>/<model>/<version>/      a complete version: its files, shard.json, origin.json
    <data>/<model>/LIVE            the server's note of what it has activated
    <data>/.incoming/<model>/<version>/   a download in progress; NAME.part can be resumed
    <data>/.agent/                 the agent's own notes

Threads: calls about one model come from one thread at a time.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from elasticctr.cube.shared.listing import ShardListing, parse_shard
from elasticctr.cube.shared.names import check_model, may_be_same
from elasticctr.errors import Corruption, DataError, ElasticCTRError, InternalError, NotFound
from elasticctr.storage.atomic import (
    explain_write,
    read_json,
    remove_tree,
    sync_directory,
    write_atomic,
    write_json,
)
from elasticctr.versions.manifest import check_version

_SPARE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A complete version on disk. `identity` names its contents independently of their form, `parent_identity` the
    contents of its parent, if known."""

    listing: ShardListing
    sha256: str
    identity: str
    is_retired: bool
    parent_identity: str | None = None


class DataDirectory:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.notes = data / ".agent"
        self._incoming = data / ".incoming"
        try:
            self.notes.mkdir(parents=True, exist_ok=True)
            self._incoming.mkdir(exist_ok=True)
        except OSError as e:
            raise explain_write(e, data) from None

    def models(self) -> list[str]:
        return sorted(path.name for path in self.data.iterdir() if path.is_dir() and not path.name.startswith("."))

    def versions(self, model: str) -> list[int]:
        folder = self.data / check_model(model)
        if not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit() and path.is_dir())

    def live(self, model: str) -> tuple[int, int]:
        """The version that LIVE names and the one before it; 0 for none."""
        try:
            note = read_json(self.data / check_model(model) / "LIVE")
            version, previous = note.get("version", 0), note.get("previous", 0)
            return check_version(version), check_version(previous) if previous else 0
        except (NotFound, Corruption, DataError):
            return 0, 0

    def find(self, model: str, version: int) -> StoredVersion | None:
        """A version if all its files exist with their listed sizes; the server checks the contents."""
        folder = self.folder(model, version)
        try:
            data = (folder / "shard.json").read_bytes()
        except OSError:
            return None
        try:
            listing = parse_shard(data, f"{model} version {version}")
        except Corruption:
            return None
        if (listing.model, listing.version) != (model, version):
            return None
        for file in listing.files:
            try:
                if (folder / file.name).stat().st_size != file.size:
                    return None
            except OSError:
                return None
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            origin = read_json(folder / "origin.json")
        except ElasticCTRError:
            origin = {}
        identity, below = str(origin.get("identity") or sha256), origin.get("parent_identity")
        return StoredVersion(
            listing, sha256, identity, (folder / "RETIRED").exists(), None if below is None else str(below)
        )

    def is_whole(self, model: str, held: StoredVersion) -> bool:
        """Whether a version's whole chain is here too, with the contents it was made from."""
        while held.listing.parent:
            below = self.find(model, held.listing.parent)
            if below is None or not may_be_same(below.identity, held.parent_identity):
                return False
            held = below
        return True

    def folder(self, model: str, version: int) -> Path:
        return self.data / check_model(model) / str(check_version(version))

    def begin(self, listing: ShardListing) -> Path:
        """A directory for incoming files, with those of an earlier attempt. Raises if they cannot fit on the disk."""
        folder = self._incoming / listing.model / str(listing.version)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            here = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
            free = shutil.disk_usage(self.data).free
        except OSError as e:
            raise explain_write(e, folder) from None
        missing = listing.total_bytes - here
        if missing + _SPARE_BYTES > free:
            self.abandon(listing.model, listing.version)
            raise InternalError(
                f"{self.data}: the disk is full: version {listing.version} of {listing.model} needs {missing:,} bytes, "
                f"{free:,} are free; free some space or retire versions. Served versions are untouched"
            )
        return folder

    def keep_only(self, folder: Path, listing: ShardListing) -> None:
        """Removes leftovers of another build from a directory of incoming files."""
        names = {file.name for file in listing.files}
        for path in folder.iterdir():
            if path.name.removesuffix(".part") not in names:
                path.unlink(missing_ok=True)

    def finish(
        self, folder: Path, listing: ShardListing, data: bytes, identity: str, parent_identity: str | None = None
    ) -> None:
        """Moves a fetched version into place. REQUIRES: every listed file is in `folder`, checked and synced."""
        target = self.folder(listing.model, listing.version)
        write_json(folder / "origin.json", {"identity": identity, "parent_identity": parent_identity})
        write_atomic(folder / "shard.json", data)
        try:
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                remove_tree(target)
            folder.rename(target)
            sync_directory(target.parent)
            sync_directory(self.data)
        except OSError as e:
            raise explain_write(e, target) from None

    def abandon(self, model: str, version: int) -> None:
        """Removes the incoming files of a version."""
        shutil.rmtree(self._incoming / check_model(model) / str(check_version(version)), ignore_errors=True)

    def discard(self, model: str, version: int) -> None:
        """Removes a version. REQUIRES: the server does not serve it."""
        remove_tree(self.folder(model, version))

    def mark_retired(self, model: str, version: int, *, retired: bool = True) -> None:
        mark = self.folder(model, version) / "RETIRED"
        try:
            if not retired:
                mark.unlink(missing_ok=True)
            elif mark.parent.is_dir():
                mark.touch()
                sync_directory(mark.parent)
        except OSError as e:
            raise explain_write(e, mark) from None

    def sweep(self, model: str, in_use: set[int]) -> list[int]:
        """Removes retired versions that no version kept or in use depends on. Returns which."""
        held = {version: self.find(model, version) for version in self.versions(model)}
        needed: set[int] = set()
        for version, found in held.items():
            if version in in_use or (found is not None and not found.is_retired):
                while version and version not in needed:
                    needed.add(version)
                    below = held.get(version)
                    version = below.listing.parent if below is not None else 0
        gone = [version for version in held if version not in needed]
        for version in gone:
            self.discard(model, version)
        self._drop_abandoned(model, max(in_use, default=0))
        return gone

    def _drop_abandoned(self, model: str, newest: int) -> None:
        """Removes incoming files of superseded versions. REQUIRES: none is being fetched."""
        folder = self._incoming / model
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.isdigit() and int(path.name) < newest:
                shutil.rmtree(path, ignore_errors=True)
