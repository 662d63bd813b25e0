"""A version being written. Its files go into place one by one, then the manifest; only the donefile line that follows
makes it exist for others. Without that line it is a leftover; removal.py decides when it may go."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elasticctr import __version__
from elasticctr.errors import FailedPrecondition, NotFound
from elasticctr.table.buckets import bucket_range
from elasticctr.versions.donefile import DONEFILE, UNFINISHED, DonefileEvent
from elasticctr.versions.encoding import row_bytes
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import FORMAT, MANIFEST, Encoding, FileEntry, Kind, Manifest, Segment, TableEntry
from elasticctr.versions.repository import Repository
from elasticctr.versions.sparse import RowChunk, write_gone, write_rows

PART_BYTES = 256 << 20


class RowsByBucket(Protocol):
    """Rows to be written: their approximate number, and those of a range of buckets."""

    @property
    def estimate(self) -> int: ...

    def read(self, buckets: tuple[int, int]) -> Iterable[RowChunk]: ...


class VersionWriter:
    def __init__(self, repository: Repository, model: str, version: int, lease: PublisherLease) -> None:
        self.version = version
        self._lease = lease
        self._repository = repository
        self._model = model
        self._prefix = f"{model}/{version}"
        self._files: list[FileEntry] = []
        self._tables: dict[str, TableEntry] = {}

    def add_file(self, name: str, data: bytes) -> None:
        self._repository.store.write_bytes(f"{self._prefix}/{name}", data)
        self._files.append(FileEntry(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))

    def add_table(
        self,
        name: str,
        segments: tuple[Segment, ...],
        encoding: Encoding,
        rows: RowsByBucket,
        gone: NDArray[np.uint64],
    ) -> None:
        """Writes the rows of a table and its dropped feasigns, in parts of about PART_BYTES."""
        dim = sum(segment.dim for segment in segments)
        width = row_bytes(encoding, dim)
        parts = min(max(1, -(-rows.estimate * (width + 8) // PART_BYTES)), 256)
        written = 0
        for part in range(parts):
            chunks = self._while_alive(rows.read(bucket_range(part, parts)))
            entry, count = write_rows(
                self._repository.store, self._prefix, f"sparse/{name}/part-{part:05d}.arrow", chunks, encoding, dim
            )
            self._files.append(entry)
            self._lease.keep_alive()
            written += count
        if len(gone):
            entry = write_gone(self._repository.store, self._prefix, f"sparse/{name}/gone-00000.arrow", gone)
            self._files.append(entry)
        self._lease.renew()
        self._tables[name] = TableEntry(
            encoding=encoding, dim=dim, row_bytes=width, segments=segments, rows=written, gone=len(gone)
        )

    def _while_alive(self, chunks: Iterable[RowChunk]) -> Iterator[RowChunk]:
        """Renews the lease between rows: a table may take longer to write than the lease lasts."""
        for chunk in chunks:
            self._lease.keep_alive()
            yield chunk

    def commit(self, kind: Kind, parent: Manifest | None, run: dict[str, object]) -> Manifest:
        """Writes the manifest. The version is then complete but not yet announced."""
        manifest = Manifest(
            format=FORMAT,
            model=self._model,
            version=self.version,
            kind=kind,
            parent=0 if parent is None else parent.version,
            base=self.version if parent is None else parent.base,
            chain=() if parent is None else (*parent.chain, parent.version),
            created=time.time(),
            elasticctr=__version__,
            run=run,
            tables=self._tables,
            files=tuple(self._files),
        )
        self._lease.renew()
        data = json.dumps(manifest.model_dump(mode="json"), indent=1).encode() + b"\n"
        self._repository.store.write_bytes(f"{self._prefix}/{MANIFEST}", data)
        self._digest = hashlib.sha256(data).hexdigest()
        return manifest

    def announce(self, manifest: Manifest) -> None:
        """Appends the donefile line, which makes the version live."""
        self._lease.renew()
        append_event(
            self._repository,
            self._model,
            DonefileEvent(
                0,
                "publish",
                manifest.version,
                manifest.kind,
                manifest.parent,
                manifest.base,
                self._digest,
                time.time(),
            ),
        )


def append_event(repository: Repository, model: str, event: DonefileEvent) -> None:
    """Appends one line. First closes and marks what a killed writer left without a newline."""
    name = f"{model}/{DONEFILE}"
    store = repository.store
    try:
        before = store.read_bytes(name)
    except NotFound:
        before = b""
    is_torn = bool(before) and not before.endswith(b"\n")
    store.append(name, (UNFINISHED + b"\n") * is_torn + event.line())


def next_version(repository: Repository, model: str) -> int:
    """A number that no version has or had. FailedPrecondition if a lost donefile makes that impossible to know."""
    log, there = repository.log(model), repository.numbers(model)
    if log is None and any(repository.store.exists(f"{model}/{version}/{MANIFEST}") for version in there):
        raise FailedPrecondition(
            f"{repository.url}/{model}: has versions but no {DONEFILE}, so that numbers could be given twice; "
            f"nothing was published. Run elasticctr versions fsck {repository.url} --model {model} --rebuild"
        )
    announced = [] if log is None else [event.version for event in log.events]
    return max([0, *announced, *there]) + 1
