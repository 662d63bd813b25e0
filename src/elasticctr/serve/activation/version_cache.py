"""A local cache of a model's versions, so that a restart needs neither a build nor the repository.

    DIR/MODEL/lock                                       one server per directory
    DIR/MODEL/state.json                                 what is served and what users decided (state.py)
    DIR/MODEL/files/7/{identity, manifest.json, …}       schema, graph and samples, checked against the manifest
    DIR/MODEL/files/7/index                              the identity its index files were built from
    DIR/MODEL/7/                                         index files, as made by cube/build

A version's identity is the SHA-256 of its manifest: a recreated repository has other versions under the same numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from elasticctr.cube.layout import BUILD
from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition
from elasticctr.storage.atomic import explain_write, remove_tree, write_atomic
from elasticctr.versions.manifest import MANIFEST, Manifest, parse_manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.samples import SAMPLES
from elasticctr.versions.serving_schema import SCHEMA
from elasticctr.versions.verification import GRAPH

IDENTITY, INDEX = "identity", "index"
_SLOTS = 64


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The small files of a version, as listed in its manifest."""

    manifest: Manifest
    identity: str
    schema: bytes
    graph: bytes
    samples: bytes


class VersionCache:
    """Locks its directory until `close` or the end of the process."""

    def __init__(self, directory: Path, model: str) -> None:
        self.out = directory
        self.model = model
        self.root = directory / model
        self._files = self.root / "files"
        try:
            self._files.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise explain_write(e, self.root) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise FailedPrecondition(
                f"{self.root}: another server uses this directory; give this one another index_dir"
            ) from None

    @classmethod
    def open_default(cls, repo: str, model: str, server: str) -> VersionCache:
        """One in the user's cache directory, by repository and server; the next one if another process uses it."""
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticctr" / "serve"
        place = repo if "://" in repo else str(Path(repo).absolute())
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", place.rstrip("/").rpartition("/")[2]) or "repo"
        parent = root / f"{readable}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        for number in range(1, _SLOTS):
            with contextlib.suppress(FailedPrecondition):
                return cls(parent / (server if number == 1 else f"{server}.{number}"), model)
        raise FailedPrecondition(f"{parent}: {_SLOTS} servers use directories there; give this one an index_dir")

    def close(self) -> None:
        os.close(self._lock)

    def fetch(self, repository: Repository, manifest: Manifest, identity: str) -> VersionFiles:
        """The files of a version, from the cache or the repository."""
        kept = self.read(manifest.version)
        if kept is not None and kept.identity == identity:
            return kept
        (self._files / str(manifest.version) / IDENTITY).unlink(missing_ok=True)

        def read(name: str) -> bytes:
            return repository.read_file(manifest.model, manifest.version, name)

        raw = repository.store.read_bytes(f"{manifest.model}/{manifest.version}/{MANIFEST}")
        if hashlib.sha256(raw).hexdigest() != identity:
            raise Corruption(f"{repository.url}/{manifest.model}/{manifest.version}: its manifest changed meanwhile")
        files = VersionFiles(manifest, identity, read(SCHEMA), read(GRAPH), read(SAMPLES))
        place = self._files / str(manifest.version)
        try:
            place.mkdir(exist_ok=True)
        except OSError as e:
            raise explain_write(e, place) from None
        contents = {MANIFEST: raw, SCHEMA: files.schema, Path(GRAPH).name: files.graph, SAMPLES: files.samples}
        for name, data in contents.items():
            write_atomic(place / name, data)
        # Last: without it the directory is not a version.
        write_atomic(place / IDENTITY, identity.encode())
        return files

    def read(self, version: int) -> VersionFiles | None:
        """The cached files of a version, checked; None if they are incomplete."""
        place = self._files / str(version)
        try:
            identity = (place / IDENTITY).read_text()
            raw = (place / MANIFEST).read_bytes()
            if hashlib.sha256(raw).hexdigest() != identity:
                return None
            manifest = parse_manifest(raw, str(place / MANIFEST))
            digests = {file.name: file.sha256 for file in manifest.files}
            found = []
            for name in (SCHEMA, GRAPH, SAMPLES):
                found.append((place / Path(name).name).read_bytes())
                if hashlib.sha256(found[-1]).hexdigest() != digests[name]:
                    return None
        except (OSError, ValueError, KeyError, ElasticCTRError):
            return None
        return VersionFiles(manifest, identity, *found)

    def indexed(self, version: int) -> str | None:
        """The identity that a version's index files here were built from; None if there are none."""
        try:
            built = (self._files / str(version) / INDEX).read_text()
        except (OSError, UnicodeDecodeError):
            return None
        return built if (self.root / str(version) / BUILD).is_file() else None

    def begin_index(self, version: int, identity: str) -> None:
        """Removes index files of another identity, and notes the identity of the next ones."""
        self.remove_index(version)
        place = self._files / str(version)
        try:
            place.mkdir(exist_ok=True)
        except OSError as e:
            raise explain_write(e, place) from None
        write_atomic(place / INDEX, identity.encode())

    def remove_index(self, version: int) -> None:
        remove_tree(self.root / str(version))

    def remove(self, version: int) -> None:
        """Removes a version. Its identity goes first, so that remains after a crash are not trusted."""
        (self._files / str(version) / IDENTITY).unlink(missing_ok=True)
        self.remove_index(version)
        shutil.rmtree(self._files / str(version), ignore_errors=True)

    def prune(self, keep: Collection[int]) -> None:
        """Removes versions except those in `keep` and their chains."""
        needed = set(keep)
        for version in keep:
            kept = self.read(version)
            needed.update(() if kept is None else kept.manifest.chain)
        for place in [*self.root.iterdir(), *self._files.iterdir()]:
            if place.name.isdigit() and int(place.name) not in needed:
                self.remove(int(place.name))
