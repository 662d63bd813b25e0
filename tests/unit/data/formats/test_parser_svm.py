"""The libsvm and libffm formats: their lines and their errors."""

from __future__ import annotations

import pytest
from tests.unit.data.formats.parsing import BIG, D2, A, B, assert_bad, bags, parse


def test_libsvm_lines() -> None:
    text = b"-1 1:0.5 3:1 7:0.1 9:0\n+1 2:2 18446744073709551615:1 # 4:1\n0\n"
    batch = parse(text, D2, A, format="libsvm").batch
    assert batch.labels.tolist() == [[0], [1], [0]]
    assert batch.dense.tolist() == [[0.5, 0], [0, 2], [0, 0]]
    assert bags(batch) == [[3, 7], [BIG], []]
    assert bags(parse(b"1 0:1 1:1 2:0\n", A, format="libsvm").batch) == [[0, 1]]


def test_libffm_lines() -> None:
    batch = parse(b"1 a:5:1 b:7:0.3 a:6:0 q:1:1\n-1 d:0:0.5 b:8:1 d:1:0.25 # c\n", A, B, D2, format="libffm").batch
    assert batch.labels.tolist() == [[1], [0]]
    assert bags(batch, 0) == [[5], []]
    assert bags(batch, 1) == [[7], [8]]
    assert batch.dense.tolist() == [[0, 0], [0.5, 0.25]]


@pytest.mark.parametrize(
    ("format", "line", "reason"),
    [
        ("libsvm", b"2 1:1", "label 'click' is '2'"),
        ("libsvm", b"1 x:1", "'x:1' is not of the form index:value"),
        ("libsvm", b"1 5", "'5' is not of the form index:value"),
        ("libsvm", b"1 5:", "does not end with a colon and a finite number"),
        ("libsvm", b"1 5:nan", "does not end with a colon and a finite number"),
        ("libsvm", b"1 0:1", "index 0"),
        ("libsvm", b"1 1:1e39", "not a finite number"),
        ("libsvm", b"1 18446744073709551616:1", "is not of the form index:value"),
        ("libffm", b"1 a:1", "does not end with a colon and a finite number"),
        ("libffm", b"1 a", "is not of the form field:feature:value"),
        ("libffm", b"1 d:1", "is not of the form field:feature:value"),
        ("libffm", b"1 a:x:1", "slot 'a' has 'x:1', not a feasign"),
        ("libffm", b"1 d:0:1", "dense slot 'd' has 1 values, not 2"),
        ("libffm", b"1 a:1:1x", "does not end with a colon and a finite number"),
    ],
)
def test_bad_svm_line(format: str, line: bytes, reason: str) -> None:
    assert_bad(parse(line, D2, A, format=format), reason)
