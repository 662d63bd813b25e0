"""The feasign format: its lines and its errors."""

from __future__ import annotations

import pytest
from tests.unit.data.formats.parsing import BIG, A, B, assert_bad, bags, feature_hash, parse

from elasticctr.data.schema import SparseSlot


def test_feasign_lines() -> None:
    text = f"1 0 5:a 7:b 8:a\n3 1 {BIG}:a 9:other 1:b 2:b \n0.5 0.25\n".encode()
    batch = parse(text, A, B, format="feasign", label="buy").batch
    assert batch.shows.tolist() == [1, 3, 0.5]
    assert batch.labels.tolist() == [[0], [1], [0.25]]
    assert bags(batch, 0) == [[5, 8], [BIG], []]
    assert bags(batch, 1) == [[7], [1, 2], []]


def test_feasign_strings() -> None:
    slots = (SparseSlot(name="a", values="string"), B)
    batch = parse(b"1 0 x:y:a 7:a 7:b 18446744073709551616:a\n", *slots, format="feasign").batch
    assert bags(batch) == [[feature_hash("a", v) for v in ("x:y", "7", "18446744073709551616")]]
    assert bags(batch, 1) == [[7]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1", "no label 'click'"),
        (b"x 0", "show is 'x'"),
        (b"-1 0", "show is '-1'"),
        (b"1 2", "label 'click' is '2'"),
        (b"1 0x", "label 'click' is '0x'"),
        (b"1 0 5", "'5' is not of the form feasign:slot"),
        (b"1 0 :a", "':a' is not of the form feasign:slot"),
        (b"1 0 x:a", "slot 'a' has 'x:a', not a feasign"),
        (b"1 0 18446744073709551616:a", "not a feasign"),
        (b"1 0 -1:a", "not a feasign"),
        (b"1 0 5.0:a", "not a feasign"),
    ],
)
def test_bad_feasign_line(line: bytes, reason: str) -> None:
    assert_bad(parse(line, A, format="feasign"), reason)
