"""Makes cached sample sets. A cache appears under its name complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.cache.cache import Cache
from elasticctr.data.cache.manifest import (
    MANIFEST,
    SAMPLES,
    CacheManifest,
    PartEntry,
    ReadingIdentity,
    SourceIdentity,
)
from elasticctr.data.cache.part import PART_ROWS, arrow_schema, encode
from elasticctr.data.formats.readers import FilePlace, make_reader
from elasticctr.data.pipeline import BadLineLimit, Portion, Stats, default_workers, read_portions
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import (
    AlreadyExists,
    Corruption,
    DataError,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
)
from elasticctr.storage import Source
from elasticctr.storage.atomic import sync_directory, write_atomic

_OWN = (MANIFEST, SAMPLES)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def ensure_cache(
    root: str | Path, sources: Sequence[Source], schema: Schema, options: ReadOptions, *, require_label: bool = True
) -> Cache:
    """The cache of `sources` below `root`, rebuilt if files, schema or reading options have changed."""
    reading = ReadingIdentity.of(options, require_label)
    key = json.dumps([[source.path for source in sources], reading.model_dump(mode="json")], sort_keys=True)
    directory = Path(root) / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        cache = Cache.open(directory, schema)
        if _is_current(cache.manifest, sources):
            _remember_stamps(cache, sources)
            return cache
    except (NotFound, Corruption, FailedPrecondition):
        pass
    return build_cache(directory, sources, schema, options, require_label=require_label)


def build_cache(
    directory: str | Path,
    sources: Sequence[Source],
    schema: Schema,
    options: ReadOptions,
    *,
    require_label: bool = True,
    advance: Callable[[int], None] = lambda samples: None,
) -> Cache:
    """Parses `sources` into `directory`, in place of a cache that may be there. `advance` gets the samples done."""
    directory = Path(directory)
    _refuse_foreign(directory)
    _remove_abandoned(directory)
    temporary = directory.with_name(f".{directory.name}.tmp-{secrets.token_hex(4)}-{_owner()}")
    try:
        temporary.mkdir(parents=True)
        identities = tuple(SourceIdentity.of(source) for source in sources)
        manifest = _write(temporary, sources, identities, schema, options, require_label, advance)
        for identity, source in zip(identities, sources, strict=True):
            if (identity.size, identity.stamp) != source.stamp():
                raise DataError("changed while it was being cached; try again when it is complete", source.path)
        _write_synced(temporary / MANIFEST, manifest.dump())
        sync_directory(temporary)
        # Opened before it gets its name: another build may take its place at any moment after.
        cache = Cache.open(temporary, schema)
        _replace(temporary, directory)
        cache.directory = directory
        return cache
    except OSError as e:
        raise _explain(e, directory) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_current(manifest: CacheManifest, sources: Sequence[Source]) -> bool:
    known = manifest.sources
    return len(known) == len(sources) and all(k.matches(s) for k, s in zip(known, sources, strict=True))


def _remember_stamps(cache: Cache, sources: Sequence[Source]) -> None:
    """Files that were touched but hold the same bytes need not be read next time."""
    known = cache.manifest.sources
    fresh = tuple(k.model_copy(update={"stamp": s.stamp()[1]}) for k, s in zip(known, sources, strict=True))
    if fresh != known:
        data = cache.manifest.model_copy(update={"sources": fresh}).dump()
        with contextlib.suppress(ElasticCTRError):
            write_atomic(cache.directory / MANIFEST, data, writer=str(os.getpid()))


def _write(
    directory: Path,
    sources: Sequence[Source],
    identities: tuple[SourceIdentity, ...],
    schema: Schema,
    options: ReadOptions,
    require_label: bool,
    advance: Callable[[int], None],
) -> CacheManifest:
    counter = BadLineLimit(schema, options, Stats(), sources[0].path if sources else "")
    reader = make_reader(schema, options, require_label=require_label)
    workers = default_workers(options) if options.prefetch else 0
    parts: list[PartEntry] = []
    path = directory / SAMPLES
    with path.open("w+b") as file:
        with pa.ipc.new_file(file, arrow_schema(schema)) as writer:
            head_size = file.tell()
            for batch in _regroup(read_portions(sources, reader, FilePlace(), workers), counter):
                start = file.tell()
                writer.write_batch(encode(batch))
                parts.append(PartEntry(offset=start, size=file.tell() - start, rows=len(batch), crc32c=0))
                advance(len(batch))
        counter.finish()
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        parts = [c.model_copy(update={"crc32c": _checksum(path, c.offset, c.size)}) for c in parts]
    tail = parts[-1].offset + parts[-1].size
    return CacheManifest(
        fingerprint=schema.fingerprint(),
        slots=schema,
        reading=ReadingIdentity.of(options, require_label),
        sources=identities,
        lines=counter.stats.lines,
        samples=counter.stats.samples,
        bad=counter.stats.bad,
        examples=counter.stats.examples,
        size=size,
        head_crc32c=_checksum(path, 0, head_size),
        tail_crc32c=_checksum(path, tail, size - tail),
        chunks=tuple(parts),
    )


def _regroup(portions: Iterator[Portion[Batch]], counter: BadLineLimit) -> Iterator[Batch]:
    """The samples of portions in parts of PART_ROWS."""
    held: list[Batch] = []
    have = 0
    for portion in portions:
        counter.count(portion)
        held.append(portion.rows)
        have += len(portion.rows)
        if have >= PART_ROWS:
            whole = Batch.concat(held)
            for start in range(0, have - have % PART_ROWS, PART_ROWS):
                yield whole.slice(start, start + PART_ROWS)
            held = [whole.slice(have - have % PART_ROWS, have)]
            have %= PART_ROWS
    if have:
        yield Batch.concat(held)


def _checksum(path: Path, offset: int, size: int) -> int:
    crc = 0
    with path.open("rb") as file:
        file.seek(offset)
        while size > 0 and (data := file.read(min(size, 1 << 20))):
            crc = _native.crc32c(data, crc)
            size -= len(data)
    return crc


def _refuse_foreign(directory: Path) -> None:
    try:
        others = [p for p in directory.iterdir() if p.name not in _OWN]
    except FileNotFoundError:  # or another build is replacing it just now
        return
    except NotADirectoryError:
        others = [directory]
    if others:
        raise AlreadyExists(f"{others[0]}: not part of a cached sample set; choose another directory for the cache")


def _remove_abandoned(directory: Path) -> None:
    """What builds of this machine that were killed have left beside `directory`."""
    host, _, _ = _owner().rpartition("-")
    for path in directory.parent.glob(f".{directory.name}.*-{glob.escape(host)}-*"):
        process = path.name.rpartition("-")[2]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _owner() -> str:
    # Process numbers mean nothing to other machines and containers that share the directory.
    return f"{socket.gethostname()}-{os.getpid()}"


def _replace(temporary: Path, directory: Path) -> None:
    """Puts `temporary` in the place of `directory`. Readers that have the old one open keep it."""
    old = directory.with_name(f".{directory.name}.old-{secrets.token_hex(4)}-{_owner()}")
    while True:
        try:
            temporary.rename(directory)
            break
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    sync_directory(directory.parent)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _explain(error: OSError, directory: Path) -> ElasticCTRError:
    if error.errno in _FULL:
        return InternalError(f"{directory}: no room for the cache: {error.strerror}; free some, nothing was kept")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return Unauthorized(f"{directory}: may not be written; choose another directory for the cache")
    return InternalError(f"{directory}: the cache could not be written: {error.strerror or error}")
