"""A cached sample set, open for reading."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from elasticctr import _native
from elasticctr.data.cache.manifest import FORMAT, MANIFEST, SAMPLES, CacheManifest, damaged
from elasticctr.data.cache.part import CachedPart, arrow_schema
from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.data.schema import Schema
from elasticctr.errors import ElasticCTRError, FailedPrecondition


def is_cache(location: object) -> bool:
    """Whether a location is the directory of a cached sample set, damaged or not."""
    if not isinstance(location, str) or not (Path(location) / MANIFEST).is_file():
        return False
    return (Path(location) / SAMPLES).exists() or FORMAT.encode() in (Path(location) / MANIFEST).read_bytes()[:100]


class Cache:
    """Opening maps the file and checks its manifest, head and tail. A part is checked when it is first read, so no
    damaged byte ever becomes a sample. Parts may be read from several threads."""

    def __init__(self, directory: Path, manifest: CacheManifest, schema: Schema) -> None:
        self.directory = directory
        self.manifest = manifest
        self.schema = schema
        self._verified = [False] * len(manifest.parts)
        try:
            mapping = pa.memory_map(str(self._path)).read_buffer()
            self._bytes = np.frombuffer(mapping, np.uint8)
        except (OSError, pa.ArrowException, MemoryError) as e:
            raise self._explain(e) from None
        self._check_ends()
        try:
            self._reader = pa.ipc.open_file(mapping)
        except (pa.ArrowException, OSError, MemoryError) as e:
            raise self._explain(e) from None
        if self._reader.num_record_batches != len(manifest.parts) or self._reader.schema != arrow_schema(schema):
            raise damaged(self._path, "it does not hold what its manifest says")

    @classmethod
    def open(cls, directory: str | Path, schema: Schema | None = None) -> Cache:
        """The cache in `directory`. With a `schema`, FailedPrecondition unless it was made with the same."""
        directory = Path(directory)
        manifest = CacheManifest.load(directory)
        if schema is not None and schema.fingerprint() != manifest.fingerprint:
            raise FailedPrecondition(
                f"{directory}: cached with schema {manifest.fingerprint}, asked for with schema "
                f"{schema.fingerprint()}; cache the samples again, or use the schema they were cached with"
            )
        return cls(directory, manifest, schema or manifest.slots)

    @property
    def _path(self) -> Path:
        return self.directory / SAMPLES

    def __len__(self) -> int:
        """Samples."""
        return self.manifest.samples

    @property
    def content(self) -> list[int]:
        """The same for the same samples in the same order."""
        return [part.crc32c for part in self.manifest.parts]

    @property
    def part_count(self) -> int:
        return len(self.manifest.parts)

    def part(self, index: int) -> CachedPart:
        self._verify_part(index)
        try:
            batch = self._reader.get_batch(index)
            batch.validate()
            if batch.num_rows != self.manifest.parts[index].rows:
                raise damaged(self._path, f"part {index} has another number of samples")
            return CachedPart(self.schema, batch)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as e:
            raise self._explain(e, f"part {index}: ") from None

    def _explain(self, error: Exception, part: str = "") -> ElasticCTRError:
        advice = "delete its directory and cache the samples again"
        return explain_arrow(error, str(self._path), f"damaged: {part}{{}}; {advice}")

    def verify(self) -> None:
        """Reads and checks every byte."""
        for index in range(self.part_count):
            self._verified[index] = False
            self._verify_part(index)

    def _check_ends(self) -> None:
        manifest = self.manifest
        if len(self._bytes) != manifest.size:
            raise damaged(self._path, f"{len(self._bytes)} bytes, its manifest says {manifest.size}")
        first = manifest.parts[0].offset if manifest.parts else manifest.size
        last = manifest.parts[-1].offset + manifest.parts[-1].size if manifest.parts else manifest.size
        for what, span, expected in (
            ("head", self._bytes[:first], manifest.head_crc32c),
            ("tail", self._bytes[last:], manifest.tail_crc32c),
        ):
            if _native.checksum(span) != expected:
                raise damaged(self._path, f"the checksum of its {what} does not match")

    def _verify_part(self, index: int) -> None:
        if self._verified[index]:
            return
        entry = self.manifest.parts[index]
        if _native.checksum(self._bytes[entry.offset : entry.offset + entry.size]) != entry.crc32c:
            raise damaged(self._path, f"the checksum of part {index} (at byte {entry.offset}) does not match")
        self._verified[index] = True
