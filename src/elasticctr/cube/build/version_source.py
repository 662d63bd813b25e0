"""The rows of a published version, for the builder. Every file is checked against the manifest before use.

Local files are mapped, remote ones first copied to the local disk. The next file is hashed while the rows of the
current one are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

import pyarrow as pa

from elasticctr.errors import Corruption, FailedPrecondition, NotFound
from elasticctr.versions.interchange.rows import Block, Feasigns, RowInfo
from elasticctr.versions.manifest import FileEntry, Manifest
from elasticctr.versions.parts import feasigns_of, read_batches, rows_of
from elasticctr.versions.repository import Repository

_STEP_BYTES = 4 << 20


class VersionSource:
    """One table's own rows and tombstones in one version; a RowSource."""

    def __init__(self, repository: Repository, manifest: Manifest, table: str) -> None:
        if table not in manifest.tables:
            known = ", ".join(manifest.tables)
            raise NotFound(f"{manifest.model} version {manifest.version}: no table {table!r}; it has {known}")
        entry = manifest.tables[table]
        self.info = RowInfo(entry.encoding, entry.dim, entry.row_bytes)
        self.count: int | None = entry.rows
        self._repository = repository
        self._manifest = manifest
        self._table = table

    def blocks(self) -> Iterator[Block]:
        width = self.info.row_bytes
        count = 0
        for where, batch in self._batches(self._manifest.parts(self._table, "part")):
            count += len(batch)
            yield feasigns_of(batch, where), rows_of(batch, width, where)
        self._check(count, self._manifest.tables[self._table].rows, "rows")

    def gone(self) -> Iterator[Feasigns]:
        count = 0
        for where, batch in self._batches(self._manifest.parts(self._table, "gone")):
            count += len(batch)
            yield feasigns_of(batch, where)
        self._check(count, self._manifest.tables[self._table].gone, "gone feasigns")

    def _check(self, count: int, announced: int, what: str) -> None:
        if count != announced:
            raise Corruption(
                f"{self._repository.url}/{self._manifest.model}/{self._manifest.version}: table {self._table} holds "
                f"{count} {what}, but its manifest says {announced}"
            )

    def _batches(self, files: list[FileEntry]) -> Iterator[tuple[str, Any]]:
        with ThreadPoolExecutor(1, "verify") as pool:
            ahead: deque[Future[tuple[str, _Mapped]]] = deque()
            for entry in [*files, None]:
                if entry is not None:
                    ahead.append(pool.submit(self._read, entry))
                if len(ahead) < 2 and entry is not None:
                    continue
                if not ahead:
                    return
                where, data = ahead.popleft().result()
                with contextlib.closing(data):
                    yield from ((where, batch) for batch in read_batches(pa.py_buffer(data.view), where))

    def _read(self, entry: FileEntry) -> tuple[str, _Mapped]:
        """The bytes of a file, checked against its manifest."""
        model, version = self._manifest.model, self._manifest.version
        where = f"{self._repository.url}/{model}/{version}/{entry.name}"
        with self._repository.open_part(model, version, entry.name) as raw:
            data, digest = _map_checked(raw)
        if data.size() != entry.bytes or digest != entry.sha256:
            data.close()
            raise Corruption(f"{where}: does not match its manifest; publish the version again")
        return where, data


class ChainSource:
    """One table after a base and its deltas: for building a base from a chain.

    Blocks and tombstones come version by version, so `steps` is read instead of `blocks` and `gone`.
    """

    def __init__(self, repository: Repository, chain: list[Manifest], table: str) -> None:
        self._sources = [VersionSource(repository, manifest, table) for manifest in chain if table in manifest.tables]
        if not self._sources:
            raise NotFound(f"{chain[-1].model} version {chain[-1].version}: no table {table!r}")
        self.info = self._sources[-1].info
        self.count: int | None = sum(source.count or 0 for source in self._sources)
        for source in self._sources:
            if source.info != self.info:
                raise FailedPrecondition(
                    f"table {table}: the layout of its rows changes within the chain; publish a base"
                )

    def steps(self) -> Iterator[VersionSource]:
        """The blocks and tombstones of each version, base first."""
        yield from self._sources


def _map_checked(raw: IO[bytes]) -> tuple[_Mapped, str]:
    digest = hashlib.sha256()
    try:
        descriptor = raw.fileno()
    except (OSError, io.UnsupportedOperation, AttributeError):
        with tempfile.TemporaryFile(prefix="elasticctr-") as copy:
            while data := raw.read(_STEP_BYTES):
                digest.update(data)
                copy.write(data)
            copy.flush()
            return _Mapped(copy.fileno()), digest.hexdigest()
    mapped = _Mapped(descriptor)
    for start in range(0, mapped.size(), _STEP_BYTES):
        digest.update(mapped.view[start : start + _STEP_BYTES])
    return mapped, digest.hexdigest()


class _Mapped:
    def __init__(self, descriptor: int) -> None:
        try:
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            self._map.madvise(mmap.MADV_SEQUENTIAL)
        except ValueError:  # an empty file cannot be mapped
            self._map = mmap.mmap(-1, 1)
            self._size = 0
        else:
            self._size = len(self._map)
        self.view = memoryview(self._map)[: self._size]

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        """The mapping is released with the last array over it."""
        self.view = memoryview(b"")
