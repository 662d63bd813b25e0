"""The feature hash against an independent implementation, the xxhash package and the vectors in its page."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash

from elasticctr import _native

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "feature-hash.md"


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def mix_lane(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 from its specification, in Python's integers."""
    rest = data
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while len(rest) >= 32:
            lanes = [mix_lane(lane, w) for lane, w in zip(lanes, struct.unpack_from("<4Q", rest), strict=True)]
            rest = rest[32:]
        h = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ mix_lane(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while len(rest) >= 8:
        h = (rotate(h ^ mix_lane(0, struct.unpack_from("<Q", rest)[0]), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotate(h ^ (struct.unpack_from("<I", rest)[0] * P1 & MASK), 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        h = rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


@pytest.mark.parametrize("seed", [0, 1, 2654435761, MASK])
def test_xxh64_of_every_length(seed: int) -> None:
    data = np.random.default_rng(5).integers(0, 256, 300, dtype=np.uint8).tobytes()
    for size in range(200):
        for start in (0, 1, 3):  # and any alignment
            piece = data[start : start + size]
            assert _native.xxh64(piece, seed) == xxh64(piece, seed) == xxhash.xxh64_intdigest(piece, seed)


def test_feature_hash_is_two_xxh64() -> None:
    for slot, value, seed in [
        ("C1", b"68fd1e64", 0),
        ("город", "Пермь".encode(), 7),
        ("s", b"", MASK),
        ("s", b"\0" * 40, 1),
    ]:
        assert _native.feature_hash(slot, value, seed) == xxh64(value, xxh64(slot.encode(), seed))


def golden_vectors() -> list[tuple[int, str, str, int]]:
    rows = re.findall(r"^\| (\d+) \| `(.*?)` \| `(.*?)` \| (\d+) \|$", PAGE.read_text("utf-8"), re.M)
    return [(int(seed), slot, value, int(feasign)) for seed, slot, value, feasign in rows]


def test_page_has_vectors() -> None:
    assert len(golden_vectors()) >= 10


@pytest.mark.parametrize(("seed", "slot", "value", "feasign"), golden_vectors())
def test_golden_vector(seed: int, slot: str, value: str, feasign: int) -> None:
    assert _native.feature_hash(slot, value.encode(), seed) == feasign


def test_splitmix_buckets_and_shards() -> None:
    """shard_of as the page has it: the top 12 bits of the SplitMix64 finaliser, cut into equal runs."""
    for feasign in [0, 1, 2, 12345, 2**63, MASK]:
        x = feasign
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
        bucket = (x ^ x >> 31) >> 52
        assert _native.bucket_of(feasign) == bucket
        for shards in (1, 3, 16, 4096):
            assert _native.shard_of(feasign, shards) == bucket * shards // 4096
