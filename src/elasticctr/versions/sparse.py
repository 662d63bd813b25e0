"""Rows of a version on disk: Arrow IPC files of feasigns and encoded rows, cut by bucket.

Writing streams a table part by part, so memory holds one chunk of rows; reading follows a chain of versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.storage import Store
from elasticctr.versions.encoding import decode_rows, encode_rows, row_bytes
from elasticctr.versions.manifest import Encoding, FileEntry, Manifest
from elasticctr.versions.parts import feasigns_of, read_batches, rows_of
from elasticctr.versions.repository import Repository

RowChunk = tuple[NDArray[np.uint64], NDArray[np.float32]]


class Hashing:
    """A file being written, and the digest of its bytes so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self._file.write(view)
        self.bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        # The store closes the file itself, after syncing it.
        self.closed = True

    def entry(self, name: str) -> FileEntry:
        return FileEntry(name=name, bytes=self.bytes, sha256=self._digest.hexdigest())


def write_rows(
    store: Store, prefix: str, name: str, chunks: Iterable[RowChunk], encoding: Encoding, dim: int
) -> tuple[FileEntry, int]:
    """One part file at `prefix`/`name`; its entry and number of rows."""
    width = row_bytes(encoding, dim)
    schema = pa.schema([("feasign", pa.uint64()), ("row", pa.binary(width))])
    count = 0
    with store.create(f"{prefix}/{name}") as raw:
        file = Hashing(raw)
        with pa.ipc.new_file(pa.PythonFile(file, mode="w"), schema) as writer:
            for feasigns, weights in chunks:
                rows = pa.Array.from_buffers(
                    pa.binary(width), len(feasigns), [None, pa.py_buffer(encode_rows(weights, encoding))]
                )
                writer.write_batch(pa.record_batch([pa.array(feasigns), rows], schema=schema))
                count += len(feasigns)
    return file.entry(name), count


def write_gone(store: Store, prefix: str, name: str, feasigns: NDArray[np.uint64]) -> FileEntry:
    schema = pa.schema([("feasign", pa.uint64())])
    with store.create(f"{prefix}/{name}") as raw:
        file = Hashing(raw)
        with pa.ipc.new_file(pa.PythonFile(file, mode="w"), schema) as writer:
            writer.write_batch(pa.record_batch([pa.array(feasigns)], schema=schema))
    return file.entry(name)


def read_part(
    repository: Repository, manifest: Manifest, file: FileEntry
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint8] | None]]:
    """Feasigns and encoded rows of one file, batch by batch; None for rows of a gone file."""
    where = f"{repository.url}/{manifest.model}/{manifest.version}/{file.name}"
    _, name, kind = file.name.split("/")
    width = manifest.tables[name].row_bytes
    with repository.open_part(manifest.model, manifest.version, file.name) as raw:
        for batch in read_batches(raw, where):
            yield feasigns_of(batch, where), None if kind.startswith("gone") else rows_of(batch, width, where)


def get_rows(
    repository: Repository, chain: list[Manifest], table: str, feasigns: NDArray[np.uint64]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Decoded rows of some feasigns after a chain of versions: zeros and False where there is none.

    Reads every part whose buckets hold one of the feasigns: meant for checking a few samples, not for serving.
    """
    wanted, inverse = np.unique(feasigns, return_inverse=True)
    entry = chain[-1].tables[table]
    rows = np.zeros((len(wanted), entry.dim), dtype=np.float32)
    found = np.zeros(len(wanted), dtype=np.bool_)
    for manifest in chain:
        for kind in ("gone", "part"):
            files = manifest.parts(table, kind)
            owners = {_native.shard_of(int(feasign), len(files)) for feasign in wanted} if files else set()
            for number in sorted(owners):
                for keys, encoded in read_part(repository, manifest, files[number]):
                    _apply(wanted, rows, found, keys, None if encoded is None else (encoded, entry.encoding))
    return rows[inverse], found[inverse]


def _apply(
    wanted: NDArray[np.uint64],
    rows: NDArray[np.float32],
    found: NDArray[np.bool_],
    keys: NDArray[np.uint64],
    encoded: tuple[NDArray[np.uint8], Encoding] | None,
) -> None:
    places = np.searchsorted(wanted, keys)
    places[places == len(wanted)] = 0
    hits = np.flatnonzero(wanted[places] == keys) if len(wanted) else np.zeros(0, dtype=np.int64)
    if not len(hits):
        return
    found[places[hits]] = encoded is not None
    rows[places[hits]] = 0.0 if encoded is None else decode_rows(encoded[0][hits], encoded[1])
