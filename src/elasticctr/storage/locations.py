"""Turns locations into an ordered list of sources. The same location gives the same order on every machine."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO

from pydantic import Field

from elasticctr import _native
from elasticctr.config import Settings
from elasticctr.errors import ConfigError, DeadlineExceeded, NotFound
from elasticctr.storage.dates import expand, is_date_tree
from elasticctr.storage.filesystem import FileSystem, LocalFiles
from elasticctr.storage.streams import Stream

_GLOB = re.compile(r"[*?\[]")
_PROTOCOL = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_POLL_S = 1.0
# Schemas, reports and markers lie beside the samples but hold none.
_BESIDE_SAMPLES = (".done", ".yaml", ".json")


class LocationOptions(Settings):
    """How the files of a location are found and fetched."""

    start: str | None = Field(
        None, description="first day or hour of a date tree, as 20200401 or 20200401/00; the path holds {date}"
    )
    end: str | None = Field(None, description="last day or hour of a date tree, included")
    donefile: str | None = Field(
        None,
        description="file that marks a day or hour of a date tree as finished; waited for if missing, then an error",
    )
    wait_s: float = Field(0.0, ge=0, description="how long to wait for missing donefiles before giving up")
    timeout_s: float = Field(60.0, gt=0, description="longest silence of an HTTP server")
    retries: int = Field(4, ge=0, le=100, description="further attempts at an HTTP request, with growing pauses")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of samples."""

    path: str
    filesystem: FileSystem = field(repr=False, compare=False)

    def open(self, offset: int = 0) -> Stream:
        """Its decompressed bytes, starting at `offset`."""
        stream = Stream(self.filesystem.open(self.path), self.path)
        try:
            if offset:
                stream.skip(offset)
        except BaseException:
            stream.close()
            raise
        return stream

    def open_raw(self) -> IO[bytes]:
        """Its bytes as stored."""
        return self.filesystem.open(self.path)

    def open_seekable(self) -> IO[bytes]:
        """Its bytes as stored, seekable; from a local copy if the remote file cannot be sought in."""
        raw = self.open_raw()
        if raw.seekable():
            return raw
        with raw:
            copy = tempfile.TemporaryFile(prefix="elasticctr-")  # noqa: SIM115
            try:
                shutil.copyfileobj(raw, copy, 1 << 20)
                copy.seek(0)
            except BaseException:
                copy.close()
                raise
            return copy

    def content_hash(self) -> str | None:
        """XXH64 of its bytes as stored, each MiB seeded with the hash of those before; None for a remote file."""
        if not isinstance(self.filesystem, LocalFiles):
            return None
        value = 0
        with self.open_raw() as raw:
            while data := raw.read(1 << 20):
                value = _native.xxh64(data, value)
        return f"{value:016x}"

    def stamp(self) -> tuple[int | None, str]:
        """Its size as stored and a text that changes whenever it is written again."""
        return self.filesystem.stamp(self.path)


def resolve(location: str | Sequence[str], options: LocationOptions | None = None) -> list[Source]:
    """Every file of a location or list of locations, in reading order."""
    return [source for _, source in resolve_dated(location, options)]


def resolve_dated(
    location: str | Sequence[str], options: LocationOptions | None = None
) -> list[tuple[str | None, Source]]:
    """As `resolve`, each file with its day or hour in a date tree."""
    options = options or LocationOptions()
    if not isinstance(location, str):
        if not location:
            raise ConfigError("the list of paths is empty; name at least one file, directory, glob or URL")
        return [found for one in location for found in resolve_dated(one, options)]
    if not location.strip():
        raise ConfigError("the path is empty; name a file, directory, glob or URL")
    filesystem = open_filesystem(location, options)
    if not is_date_tree(location):
        if options.start is not None and "{" not in location:
            raise ConfigError(f"{location}: start and end are for date trees; write {{date}} in place of the day")
        return [(None, source) for source in _find(filesystem, location, options)]
    parts = expand(location, options.start, options.end)
    if options.donefile is not None:
        _await_donefiles(filesystem, [part.directory for part in parts], options.donefile, options.wait_s)
    return [(part.date, source) for part in parts for source in _find(filesystem, part.location, options)]


def open_source(path: str, options: LocationOptions) -> Source:
    """The one file at a path that `resolve` gave."""
    return Source(path, open_filesystem(path, options))


def open_filesystem(location: str, options: LocationOptions) -> FileSystem:
    """The file system a location names by its protocol."""
    match = _PROTOCOL.match(location)
    protocol = match[1].lower() if match else "file"
    if protocol == "file":
        return LocalFiles()
    if protocol in ("http", "https"):
        from elasticctr.storage.http import HttpFiles

        return HttpFiles(timeout_s=options.timeout_s, retries=options.retries)
    if protocol in ("s3", "hdfs", "viewfs"):
        from elasticctr.storage.remote import open_remote

        return open_remote(protocol, location)
    raise ConfigError(f"{location}: unknown protocol {protocol}://; known: file, http, https, hdfs, viewfs, s3")


def _find(filesystem: FileSystem, location: str, options: LocationOptions) -> list[Source]:
    location = location.removeprefix("file://")
    if filesystem.is_file(location):
        return [Source(location, filesystem)]
    if filesystem.is_directory(location):
        files = _files_below(filesystem, location, options.donefile)
        if not files:
            raise NotFound(
                f"{location}: a directory without sample files (hidden files, _* and donefiles do not count)"
            )
        return [Source(path, filesystem) for path in files]
    if not _GLOB.search(location):
        raise NotFound(f"{location}: no such file or directory")
    found: list[str] = []
    for path in filesystem.glob(location):
        if filesystem.is_directory(path):
            found += _files_below(filesystem, path, options.donefile)
        elif _is_sample_file(path.rstrip("/").rsplit("/", 1)[-1], options.donefile):
            found.append(path)
    if not found:
        raise NotFound(f"{location}: no file matches this pattern")
    return [Source(path, filesystem) for path in sorted(set(found))]


def _files_below(filesystem: FileSystem, directory: str, donefile: str | None) -> list[str]:
    root = directory.rstrip("/")
    return sorted(
        path
        for path in filesystem.walk(directory)
        if all(_is_sample_file(part, donefile) for part in PurePosixPath(path.removeprefix(root)).parts if part != "/")
    )


def _is_sample_file(name: str, donefile: str | None) -> bool:
    return not name.startswith((".", "_")) and name not in (donefile, "donefile") and not name.endswith(_BESIDE_SAMPLES)


def _await_donefiles(filesystem: FileSystem, directories: Sequence[str], donefile: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    missing = [f"{directory}/{donefile}" for directory in directories]
    while missing := [path for path in missing if not filesystem.is_file(path)]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            message = f"{', '.join(missing[:3])}{more}: not found"
            if wait_s == 0:
                raise NotFound(f"{message}; that data is not finished. Choose an earlier end, or set wait_s")
            raise DeadlineExceeded(f"{message} after {wait_s:g} s; that data is not finished")
        time.sleep(min(_POLL_S, left_s))
