"""Which part of a table has which buckets: shards, ranks and the files of a version all cut a table this way."""

from __future__ import annotations

from elasticctr import _native


def bucket_range(part: int, parts: int) -> tuple[int, int]:
    """[first, last) of the buckets of `part` out of `parts`, as _native.shard_of deals them out."""
    return -(-part * _native.BUCKETS // parts), -(-(part + 1) * _native.BUCKETS // parts)
