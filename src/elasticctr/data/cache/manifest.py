"""The manifest of a cached sample set: what it was made from, and the checksums of what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from elasticctr import _native
from elasticctr.config import Settings
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import Corruption, ElasticCTRError, FailedPrecondition, NotFound
from elasticctr.storage import Source

FORMAT = "elasticctr-cache"
VERSION = 1
MANIFEST = "manifest.json"
SAMPLES = "samples.arrow"


class SourceIdentity(Settings):
    """A file that was parsed."""

    path: str
    size: int | None
    stamp: str  # modification time, or the ETag of a remote file
    content: str | None  # hash of its bytes as stored; None where only the stamp can tell

    @classmethod
    def of(cls, source: Source) -> SourceIdentity:
        size, stamp = source.stamp()
        return cls(path=source.path, size=size, stamp=stamp, content=source.content_hash())

    def matches(self, source: Source) -> bool:
        """Whether the file still holds the same bytes. Only a changed stamp costs reading it."""
        size, stamp = source.stamp()
        if source.path != self.path or size != self.size:
            return False
        return stamp == self.stamp or (self.content is not None and self.content == source.content_hash())


class ReadingIdentity(Settings):
    """The options that decide which samples a file gives."""

    fraction: tuple[float, float]
    split_seed: int
    max_line_bytes: int
    require_label: bool

    @classmethod
    def of(cls, options: ReadOptions, require_label: bool) -> ReadingIdentity:
        return cls(
            fraction=options.fraction,
            split_seed=options.split_seed,
            max_line_bytes=options.max_line_bytes,
            require_label=require_label,
        )


class PartEntry(Settings):
    """One record batch of the sample file."""

    offset: int
    size: int
    rows: int
    crc32c: int


class CacheManifest(Settings):
    model_config = Settings.model_config | {"populate_by_name": True}

    format: str = FORMAT
    version: int = VERSION
    fingerprint: str
    slots: Schema
    reading: ReadingIdentity
    sources: tuple[SourceIdentity, ...]
    lines: int
    samples: int
    bad: int
    examples: tuple[str, ...]
    size: int  # of the sample file
    head_crc32c: int  # of the bytes before the first part
    tail_crc32c: int  # of the bytes after the last part
    parts: tuple[PartEntry, ...] = Field(alias="chunks")

    def dump(self) -> bytes:
        body = self.model_dump(mode="json", by_alias=True)
        return json.dumps({**body, "crc32c": _checksum(body)}, indent=1).encode() + b"\n"

    @classmethod
    def load(cls, directory: Path) -> CacheManifest:
        """Raises NotFound without a manifest, Corruption for one that contradicts itself."""
        path = directory / MANIFEST
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise NotFound(f"{directory}: no cached sample set (no {MANIFEST})") from None
        except (OSError, ValueError) as e:
            raise damaged(path, str(e)) from None
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise damaged(path, "not a manifest of a cached sample set")
        if body.get("version") != VERSION:
            raise FailedPrecondition(
                f"{path}: version {body.get('version')!r} of the format, this program reads {VERSION}; "
                "delete the directory and cache the samples again"
            )
        if body.pop("crc32c", None) != _checksum(body):
            raise damaged(path, "its checksum does not match")
        try:
            return cls.model_validate(body)
        except ValidationError as e:
            raise damaged(path, str(e.errors()[0]["msg"])) from None


def damaged(path: Path, what: str) -> ElasticCTRError:
    return Corruption(f"{path}: damaged: {what}; delete its directory and cache the samples again")


def _checksum(body: dict[str, Any]) -> int:
    return int(_native.crc32c(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()))
