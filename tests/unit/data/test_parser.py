"""The text parsers."""

from __future__ import annotations

from elasticctr.data.parser import Parser
from elasticctr.data.schema import DenseSlot, Schema, SparseSlot

SLOT = Schema(slots=(DenseSlot(name="d", dim=2), SparseSlot(name="a"), SparseSlot(name="b")))


def test_slot_line() -> None:
    parsed = Parser(SLOT).parse(b"click:1 d:0.5 d:-2 a:1 b:18446744073709551615 a:7\n\nclick:0\n")
    assert (parsed.lines, parsed.bad, parsed.next_line) == (2, [], 4)
    assert parsed.batch.labels.tolist() == [[1], [0]]
    assert parsed.batch.dense.tolist() == [[0.5, -2], [0, 0]]
    assert parsed.batch.values.tolist() == [1, 7, 2**64 - 1]
    assert parsed.batch.offsets.tolist() == [0, 2, 2, 3, 3]
