"""Where a log is cut into chunks (chunks.py), and in which order an epoch goes through them.

Plain text and CSV are cut every so many bytes, Parquet between row groups, cached sample sets between their parts;
compressed files and files of unknown size are chunks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

import numpy as np

from elasticctr.data.chunks import Chunk, Unit, seed_of
from elasticctr.data.dataset import Dataset
from elasticctr.data.formats.parquet_reader import row_group_bytes
from elasticctr.data.pipeline import Stats
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import DataSettings
from elasticctr.storage import Source, resolve_dated

_COMPRESSED = (".gz", ".zst", ".zstd")


@dataclass(frozen=True, slots=True)
class Cut:
    """The chunks of some data as they stand, numbered by none yet."""

    chunks: tuple[Chunk, ...]
    files: int
    known: Stats = field(default_factory=Stats)  # lines in no chunk: a cached sample set was made without them


def cut_data(settings: DataSettings, schema: Schema, chunk_bytes: int, *, require_label: bool = True) -> Cut:
    """Cuts the data into chunks of about `chunk_bytes`. Makes the cache that the settings ask for."""
    if settings.joined is not None:
        schema = schema.joined(Format(settings.joined))
    dataset = Dataset(settings.path, schema, settings, require_label=require_label)
    dataset.prepare()
    if (cache := dataset.cached) is not None:
        made = cache.manifest
        sizes = [entry.size for entry in made.parts]
        chunks = [Chunk(str(cache.directory), "cache_chunks", a, b) for a, b in _groups(sizes, chunk_bytes)]
        known = Stats(made.lines - made.samples, 0, made.bad, made.examples)
        return Cut(tuple(chunks), len(made.sources), known)
    found = resolve_dated(settings.path, settings)
    cut = [chunk for date, source in found for chunk in _cut_source(source, date, schema.format, chunk_bytes)]
    return Cut(tuple(cut), len(found))


def order_chunks(chunks: Sequence[Chunk], epoch: int, seed: int, *, is_shuffled: bool) -> list[Chunk]:
    """The chunks of an epoch, numbered in the order they are begun: as they stand, or mixed inside each date."""
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    ordered: list[Chunk] = []
    for _, same in groupby(chunks, key=lambda chunk: chunk.date):
        of_date = list(same)
        ordered += [of_date[i] for i in random.permutation(len(of_date))] if is_shuffled else of_date
    return [replace(c, epoch=epoch, number=n, seed=seed_of(seed, epoch, n)) for n, c in enumerate(ordered)]


def _cut_source(source: Source, date: str | None, format: Format, chunk_bytes: int) -> Iterator[Chunk]:
    size = source.stamp()[0]
    unit: Unit = "file"
    ranges = [(0, 0)]
    if format is Format.PARQUET:
        sizes = row_group_bytes(source)
        if sizes is not None:
            unit, ranges = "row_groups", _groups(sizes, chunk_bytes) or [(0, 0)]
    elif size is not None and size > chunk_bytes and not _is_compressed(source):
        count = round(size / chunk_bytes) or 1
        cuts = [size * i // count for i in range(count + 1)]
        unit, ranges = "bytes", list(pairwise(cuts))
    for start, end in ranges:
        yield Chunk(source.path, unit, start, end, date, size)


def _is_compressed(source: Source) -> bool:
    if source.path.endswith(_COMPRESSED):
        return True
    with source.open() as stream:
        return stream.is_compressed


def _groups(sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """[start, end) of neighbours that together have about `limit`."""
    groups: list[tuple[int, int]] = []
    start, have = 0, 0
    for index, size in enumerate(sizes):
        if index > start and have + size > limit:
            groups.append((start, index))
            start, have = index, 0
        have += size
    return [*groups, (start, len(sizes))] if len(sizes) > start else groups
