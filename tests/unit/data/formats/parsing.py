"""Parsing one text, and what to expect of it."""

from __future__ import annotations

import itertools

import xxhash

from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import Parsed, Parser
from elasticctr.data.schema import DenseSlot, Schema, SparseSlot

A, B = SparseSlot(name="a"), SparseSlot(name="b")
D2 = DenseSlot(name="d", dim=2)
BIG = 2**64 - 1


def parse(text: bytes, *slots: SparseSlot | DenseSlot, format: str = "slot", **schema: object) -> Parsed:
    return Parser(Schema.model_validate({"format": format, "slots": slots, **schema}), threads=1).parse(text)


def bags(batch: Batch, slot: int = 0) -> list[list[int]]:
    values, offsets = batch.slot(slot)
    return [values[i:j].tolist() for i, j in itertools.pairwise(offsets.tolist())]


def feature_hash(slot: str, value: str, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(value.encode(), xxhash.xxh64_intdigest(slot.encode(), seed))


def assert_bad(parsed: Parsed, *reasons: str) -> None:
    """One bad line, for a reason with those words in it, and no sample."""
    assert (len(parsed.batch), parsed.bad_count, parsed.lines) == (0, 1, 1)
    for words in reasons:
        assert words in parsed.bad[0].reason
