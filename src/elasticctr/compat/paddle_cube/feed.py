"""Donefiles of Paddle's tools, `base.txt` and `patch.txt`, as a feed: versions are their ids, rows are SequenceFiles.

A patch depends on the patch before it with the same key, the first one on its base. There are no rollbacks or pins. A
base with a new key starts a new chain.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from elasticctr.cube.build.builder import BuildOptions, Target, build_tables
from elasticctr.cube.build.version_source import ChainSource
from elasticctr.cube.transfer.builds import Builder
from elasticctr.cube.transfer.settings import BuildSettings, TransferSettings
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, DataError, NotFound
from elasticctr.obs.watch import Watch
from elasticctr.storage.locations import Source, open_filesystem
from elasticctr.versions.feed import Announcement, Feed, Link, join_links
from elasticctr.versions.interchange import open_rows
from elasticctr.versions.interchange.donefile import BASE, PATCH, DoneLine, read_donefile
from elasticctr.versions.interchange.rows import Block, Feasigns, RowSource

TABLE = "embedding"
_PAGE_BYTES = 1 << 20
_LINK = re.compile(r"""href=["']?(?:\./)?([^"'/?#>\s]+)["'>\s]""", re.IGNORECASE)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,200}")


def open_feed(settings: TransferSettings, shards: int, *, with_patches: bool = True) -> tuple[Feed, Builder]:
    """`base.txt` and, with patches, `patch.txt`. Raises ConfigError."""
    if len(settings.models) != 1:
        raise ConfigError("base.txt and patch.txt hold one model; give exactly one in models")
    feed = PaddleFeed(settings.repository, with_patches=with_patches)
    return feed, PaddleBuilder(feed, settings.build, shards)


class PaddleFeed:
    """Threads: one, for the single model."""

    def __init__(self, location: str, *, with_patches: bool = True) -> None:
        self._location = location.rstrip("/")
        self._with_patches = with_patches
        self._stamps: tuple[Any, ...] = ()
        self._chains: dict[int, list[DoneLine]] = {}
        self._last = 0

    def wanted(self, model: str) -> Announcement | None:
        self._read()
        if not self._last:
            return None
        identity = _identity(self._chains[self._last])
        return Announcement(f"{self._last}:{identity[:16]}", self._last, identity, False)

    def chain(self, model: str, version: int) -> list[Link]:
        self._read()
        lines = self.lines(version)
        links, parent = [], 0
        for count, line in enumerate(lines, 1):
            links.append(Link(int(line.id), parent, _identity(lines[:count]), 0))
            parent = int(line.id)
        return join_links(links)

    def pin(self, model: str, name: str, versions: list[int], ttl_s: float) -> None:
        return None

    def pinned(self, model: str) -> set[int]:
        return set()

    def lines(self, version: int) -> list[DoneLine]:
        """The lines of a version's base and patches."""
        if version not in self._chains:
            raise NotFound(f"{self._location}: no line with id {version}")
        return self._chains[version]

    def input_of(self, line: DoneLine) -> str:
        """The location of a line's files: over http, a path on the donefile's host."""
        if self._location.startswith(("http://", "https://")) and "://" not in line.input:
            parts = urlsplit(self._location)
            return f"{parts.scheme}://{parts.netloc}{posixpath.join('/', line.input)}"
        return line.input

    def _read(self) -> None:
        stamps = (self._stamp(BASE), self._stamp(PATCH) if self._with_patches else None)
        if stamps == self._stamps and stamps != (None, None):
            return
        chains: dict[int, list[DoneLine]] = {}
        heads: dict[str, list[DoneLine]] = {}
        last = 0
        for line in self._lines(BASE):
            if line.id.isdigit() and int(line.id) > 0:
                chains[int(line.id)] = heads[line.key] = [line]
                last = int(line.id)
        base = str(last)
        for line in self._lines(PATCH) if self._with_patches else ():
            below = heads.get(line.key)
            # Skip lines that occur twice, are out of order, or have an unknown base.
            if below is not None and line.id.isdigit() and int(line.id) > int(below[-1].id):
                chains[int(line.id)] = heads[line.key] = [*below, line]
                if line.key == base or chains[last][0].key == line.key:
                    last = int(line.id)
        self._stamps, self._chains, self._last = stamps, chains, last

    def _lines(self, name: str) -> Iterator[DoneLine]:
        try:
            yield from read_donefile(self._source(name)).lines
        except NotFound:
            return

    def _stamp(self, name: str) -> Any:
        try:
            return self._source(name).stamp()
        except NotFound:
            return None

    def _source(self, name: str) -> Source:
        path = f"{self._location}/{name}"
        return Source(path, open_filesystem(path, ReadOptions(timeout_s=10, retries=1)))


class PaddleBuilder:
    """Builds versions from the SequenceFiles that a line names."""

    def __init__(self, feed: PaddleFeed, settings: BuildSettings, shards: int) -> None:
        self._feed = feed
        self._options = BuildOptions(shards=shards, sharding=settings.sharding)

    def build(self, model: str, link: Link, out: Path, *, compact: bool, watch: Watch) -> None:
        lines = self._feed.lines(link.version)
        sources = [open_input(self._feed.input_of(line)) for line in (lines if compact else lines[-1:])]
        rows = _Chain(sources) if compact else sources[0]
        target = Target(model, link.version, 0 if compact else link.parent)
        build_tables({TABLE: rows}, out, target, self._options, lambda _: watch.check())


class _Chain(ChainSource):
    def __init__(self, sources: list[Any]) -> None:
        self._sources = sources
        self.info = sources[-1].info
        self.count = sum(source.count or 0 for source in sources)


class _FileRows:
    """The rows of several files in sequence; a RowSource."""

    def __init__(self, sources: list[RowSource]) -> None:
        self._sources = sources
        self.info = sources[0].info
        self.count = None
        if any(source.info != self.info for source in sources):
            raise DataError("the files of this directory have rows of different widths")

    def blocks(self) -> Iterator[Block]:
        for source in self._sources:
            yield from source.blocks()

    def gone(self) -> Iterator[Feasigns]:
        for source in self._sources:
            yield from source.gone()


def open_input(location: str) -> RowSource:
    """The rows of a file or directory. For a directory over http, uses the server's listing page."""
    if not location.startswith(("http://", "https://")):
        return open_rows(location)
    files = list_page(location)
    return _FileRows([open_rows(file) for file in files]) if files else open_rows(location)


def list_page(url: str) -> list[str]:
    """The files directly in a directory that a web server's listing page links to; empty for any other page."""
    page = f"{url.rstrip('/')}/"
    try:
        with open_filesystem(page, ReadOptions(timeout_s=30, retries=2)).open(page) as raw:
            data = raw.read(_PAGE_BYTES) or b""
    except (NotFound, DataError):
        return []
    if not data.lstrip().startswith(b"<"):
        return []
    names = [unquote(name) for name in _LINK.findall(data.decode(errors="replace"))]
    return [page + quote(name) for name in dict.fromkeys(names) if _FILE.fullmatch(name)]


def _identity(lines: list[DoneLine]) -> str:
    return hashlib.sha256(b"".join(line.encode() for line in lines)).hexdigest()
