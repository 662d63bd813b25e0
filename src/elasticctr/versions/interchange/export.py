"""Writes a published version in another format: `<to>/<table>/<version>/part-00000.seq …` and, on request,
`<to>/<table>/donefile/base.txt` or `patch.txt` with a line that names the directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress
from elasticctr.storage import open_store
from elasticctr.versions.interchange.donefile import BASE, PATCH, DoneLine, append_donefile
from elasticctr.versions.interchange.gone import GONE, write_gone
from elasticctr.versions.interchange.min_max import HEAD_BYTES, encode
from elasticctr.versions.interchange.opening import SUFFIXES, open_writer
from elasticctr.versions.interchange.rows import RowInfo
from elasticctr.versions.interchange.version_rows import VersionRows
from elasticctr.versions.repository import Repository

ROWS_PER_FILE = 10_000_000


@dataclass(frozen=True, slots=True)
class Exported:
    table: str
    directory: str
    files: int
    rows: int
    gone: int
    donefile: str | None


def export_version(
    repository: Repository,
    model: str,
    version: int,
    to: str,
    form: str,
    *,
    tables: list[str] | None = None,
    whole: bool = False,
    quantise: bool = False,
    donefile: bool = False,
) -> list[Exported]:
    """Writes the rows of a version; of a delta its own, or with `whole` its chain's too. `quantise`: 8-bit rows."""
    if quantise and form not in ("sequence", "hadoop"):
        raise ConfigError(f"8-bit rows are for SequenceFiles; format {form} holds floats")
    chain = repository.chain(model, version)
    chain = chain if whole else chain[-1:]
    manifest = chain[-1]
    is_base = whole or manifest.kind == "base"
    exported = []
    for table in tables or list(manifest.tables):
        rows = VersionRows(repository, chain, table)
        files, count = _write_parts(rows, to, f"{table}/{version}", form, quantise)
        store = open_store(to)
        gone = write_gone(store, f"{table}/{version}/{GONE}", rows.gone())
        name = f"{table}/donefile/{BASE if is_base else PATCH}" if donefile else None
        # The donefile's readers work in another directory.
        root = store.url if "://" in store.url else str(Path(store.url).absolute())
        directory = f"{root}/{table}/{version}"
        if name is not None:
            key = version if is_base else manifest.base
            append_donefile(store, name, DoneLine(str(version), str(key), directory))
        exported.append(Exported(table, directory, files, count, gone, name and f"{root}/{name}"))
    return exported


def _write_parts(rows: VersionRows, to: str, directory: str, form: str, quantise: bool) -> tuple[int, int]:
    """Files of ROWS_PER_FILE rows plus at most a block; a table without rows gets one empty file."""
    store = open_store(to)
    info = RowInfo("raw", 0, HEAD_BYTES + rows.info.dim) if quantise else rows.info
    blocks = rows.blocks()
    files, total, is_open = 0, 0, True
    with Progress("export", rows.count, "rows") as progress:
        while is_open:
            count = 0
            with open_writer(store, f"{directory}/part-{files:05d}{SUFFIXES[form]}", form, info) as writer:
                for feasigns, values in blocks:
                    if len(feasigns):
                        writer.write(feasigns, encode(values.view(np.float32)) if quantise else values)
                    count += len(feasigns)
                    progress.advance(len(feasigns))
                    if count >= ROWS_PER_FILE:
                        break
                else:
                    is_open = False
            files += 1
            total += count
    return files, total
