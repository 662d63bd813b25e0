"""Checks names that come over the network before they become part of a path, a URL or a command."""

from __future__ import annotations

import re

from elasticctr.errors import DataError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHARD = re.compile(r"shard-(\d{4})-of-(\d{4})")

MAX_SHARDS = 4096


def check_model(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataError(f"{name!r} is not a model name: at most 64 letters, digits, '_', '.' or '-'")
    return name


def check_digest(digest: object) -> str:
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise DataError("a SHA-256 must be 64 lower-case hexadecimal digits")
    return digest


def check_file(name: object) -> str:
    """The name of a file directly in a version's or shard's directory."""
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        raise DataError(f"{name!r} is not an allowed file name in a cube directory")
    return name


def shard_directory(shard: int, shards: int) -> str:
    return f"shard-{shard:04d}-of-{shards:04d}"


def parse_shard_directory(name: str) -> tuple[int, int]:
    match = _SHARD.fullmatch(name)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_SHARDS:
        raise DataError(f"{name!r} is not a shard's directory such as shard-0000-of-0002")
    return int(match[1]), int(match[2])


def may_be_same(identity: str | None, other: str | None) -> bool:
    """Whether two identities may belong to the same contents. An unknown identity differs from none."""
    return not identity or not other or identity == other
