"""The builds on a transfer's disk: made once, checked by their listings, served to agents, pruned.

    <state>/builds/published/<model>/<version>/   a version as published, base or delta
    <state>/builds/compacted/<model>/<version>/   the same contents as one base
    <state>/builds/.making/…                      a build in progress

A build exists once its build.json does: it is made elsewhere and moved into place whole. Its origin.json names what it
was made from, the version and its chain. A build of the same number from another repository, or from the same one
before it was restored from a backup, is replaced.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path
from typing import Any, Literal, Protocol

from elasticctr.cube.shared.listing import BuildListing, parse_build, parse_shard
from elasticctr.cube.shared.names import check_file, check_model, parse_shard_directory, shard_directory
from elasticctr.errors import Corruption, DataError, NotFound
from elasticctr.obs.watch import Watch
from elasticctr.storage.atomic import explain_write, read_json, remove_tree, sync_directory, write_json
from elasticctr.versions.feed import Link
from elasticctr.versions.manifest import check_version

Form = Literal["published", "compacted"]
FORMS: tuple[Form, ...] = ("published", "compacted")
_ORIGIN = "origin.json"


class Builder(Protocol):
    def build(self, model: str, link: Link, out: Path, *, compact: bool, watch: Watch) -> None:
        """Writes `<out>/<model>/<version>/` with the contents of that version alone or of its whole chain."""
        ...


class Builds:
    """Threads: any; builds of one model are made one at a time."""

    def __init__(self, root: Path, builder: Builder, shards: int) -> None:
        self.root = root
        self._builder = builder
        self._shards = shards
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def find(self, model: str, link: Link, form: Form) -> dict[str, Any] | None:
        """The step to send to agents for a complete build of exactly this version; None if there is none."""
        folder = self.folder(model, link.version, form)
        try:
            listing = self._read(folder)
            if read_json(folder / _ORIGIN).get("chain") != link.chain:
                return None
        except (NotFound, Corruption):
            return None
        if (listing.model, listing.version, listing.shards) != (model, link.version, self._shards):
            return None
        return {
            "version": link.version,
            "form": form,
            "kind": listing.kind,
            "parent": listing.parent,
            "sha256": [file.sha256 for file in listing.shard_files],
            "identity": link.identity,
            "parent_identity": (link.parent_identity or None) if listing.parent else None,
        }

    def ensure(self, model: str, link: Link, form: Form, watch: Watch) -> dict[str, Any]:
        """The step for a build, which is made if it does not exist."""
        with self._lock_of(model):
            found = self.find(model, link, form)
            if found is None:
                self._make(model, link, form, watch)
                found = self.find(model, link, form)
            if found is None:
                raise Corruption(f"the builder did not make version {link.version} of {model}")
            return found

    def folder(self, model: str, version: int, form: Form) -> Path:
        return self.root / form / check_model(model) / str(check_version(version))

    def file(self, form: str, model: str, version: str, shard: str, name: str) -> Path:
        """A file that agents may fetch. Checks every part of the name before making a path."""
        if form not in FORMS or not version.isascii() or not version.isdigit() or len(version) > 19:
            raise DataError(f"{form}/{version}: not a build")
        parse_shard_directory(shard)
        path = self.folder(model, int(version), form) / shard / check_file(name)
        if path.suffix not in (".cube", ".json") or not path.is_file():
            raise NotFound(f"{form} version {version} of {model}: no {shard}/{name} here")
        return path

    def prune(self, model: str, keep: set[int]) -> list[str]:
        """Removes all builds of a model except those of the versions to keep."""
        gone = []
        with self._lock_of(model):
            for form in FORMS:
                for path in self._versions(model, form):
                    if int(path.name) not in keep:
                        remove_tree(path)
                        gone.append(f"{form}/{path.name}")
        return gone

    def versions(self, model: str) -> list[int]:
        """Versions with a build of any form, ascending."""
        return sorted({int(path.name) for form in FORMS for path in self._versions(model, form)})

    def _versions(self, model: str, form: Form) -> list[Path]:
        folder = self.root / form / check_model(model)
        return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []

    def _make(self, model: str, link: Link, form: Form, watch: Watch) -> None:
        making = self.root / ".making" / form / model
        target = self.folder(model, link.version, form)
        try:
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._builder.build(model, link, making, compact=form == "compacted", watch=watch)
            built = making / model / str(link.version)
            self._read(built)
            write_json(built / _ORIGIN, {"identity": link.identity, "chain": link.chain})
            remove_tree(target)
            built.rename(target)
            sync_directory(target.parent)
        except OSError as e:
            raise explain_write(e, target) from None
        finally:
            shutil.rmtree(making, ignore_errors=True)

    def _read(self, folder: Path) -> BuildListing:
        """Checks the digests from build.json down to the sizes of files; agents check the contents they fetch."""
        try:
            listing = parse_build((folder / "build.json").read_bytes(), f"{folder}/build.json")
            for number, entry in enumerate(listing.shard_files):
                data = (folder / entry.name).read_bytes()
                if hashlib.sha256(data).hexdigest() != entry.sha256:
                    raise Corruption(f"{folder}/{entry.name}: its SHA-256 is not the one in build.json")
                shard = parse_shard(data, f"{folder}/{entry.name}")
                for file in shard.files:
                    path = folder / shard_directory(number, listing.shards) / file.name
                    if path.stat().st_size != file.size:
                        raise Corruption(f"{path}: {path.stat().st_size} bytes, but {file.size} are listed")
        except FileNotFoundError as e:
            raise NotFound(f"{e.filename}: no such file") from None
        return listing

    def _lock_of(self, model: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(model, threading.Lock())
