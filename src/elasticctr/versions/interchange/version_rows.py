"""The rows of one table of a published version, as floats: the version's own, or its whole chain's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from elasticctr.errors import NotFound
from elasticctr.versions.encoding import decode_rows
from elasticctr.versions.interchange.rows import Block, Feasigns, RowInfo
from elasticctr.versions.manifest import Manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.sparse import read_part


class VersionRows:
    """`chain` is the version and those it depends on, base first; for the version alone, a chain of one."""

    def __init__(self, repository: Repository, chain: list[Manifest], table: str) -> None:
        newest = chain[-1]
        if table not in newest.tables:
            known = ", ".join(newest.tables)
            raise NotFound(f"{newest.model} version {newest.version}: no table {table!r}; it has {known}")
        self._repository = repository
        self._chain = chain
        self._table = table
        dim = newest.tables[table].dim
        self.info = RowInfo("fp32", dim, 4 * dim)
        self.count = newest.tables[table].rows if len(chain) == 1 else None

    def blocks(self) -> Iterator[Block]:
        # Newest first, so that a row is skipped if a later version changed or dropped it. That needs only the feasigns
        # of deltas in memory, not those of the base.
        later = np.zeros(0, np.uint64)
        for manifest in reversed(self._chain):
            encoding = manifest.tables[self._table].encoding
            seen = [later]
            for feasigns, rows in self._rows(manifest):
                keep = ~np.isin(feasigns, later) if len(later) else np.ones(len(feasigns), bool)
                kept = decode_rows(rows[keep], encoding)
                yield feasigns[keep], np.ascontiguousarray(kept).view(np.uint8)
                seen.append(feasigns)
            if manifest is not self._chain[0]:
                seen += self._gone(manifest)
                later = np.unique(np.concatenate(seen))

    def gone(self) -> Iterator[Feasigns]:
        """Feasigns dropped by a version alone. A base or a whole chain drops none."""
        if len(self._chain) == 1:
            yield from self._gone(self._chain[0])

    def _rows(self, manifest: Manifest) -> Iterator[Block]:
        for file in manifest.parts(self._table, "part"):
            for feasigns, rows in read_part(self._repository, manifest, file):
                if rows is not None:
                    yield feasigns, rows

    def _gone(self, manifest: Manifest) -> Iterator[Feasigns]:
        for file in manifest.parts(self._table, "gone"):
            for feasigns, _ in read_part(self._repository, manifest, file):
                yield feasigns
