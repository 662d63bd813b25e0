"""Arrow cells become floats and feasigns; cells that are neither are told, one by one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticctr.data.formats.numbers import read_ids, read_numbers
from elasticctr.errors import ConfigError

BIG = 2**64 - 1


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([1, None, -3], pa.int8(), [1, None, -3]),
        ([0.5, None], pa.float32(), [0.5, None]),
        ([True, False, None], pa.bool_(), [1, 0, None]),
        ([Decimal("1.25"), None], pa.decimal128(9, 4), [1.25, None]),
        ([None, None], pa.null(), [None, None]),
        (["1e3", None, "-.5"], pa.string(), [1000, None, -0.5]),
        ([b"7", None], pa.binary(), [7, None]),
        ([BIG], pa.uint64(), [float(BIG)]),
        ([], pa.string(), []),
    ],
)
def test_cells_of_every_kind(cells: list[Any], kind: pa.DataType, expected: list[float | None]) -> None:
    found = read_numbers(pa.array(cells, kind), "x")
    assert found.present.tolist() == [cell is not None for cell in expected]
    assert [v for v, there in zip(found.values, found.present, strict=True) if there] == [
        cell for cell in expected if cell is not None
    ]
    assert found.values.dtype == np.float64 and len(found.wrong) == 0


def test_one_bad_cell_spoils_no_other() -> None:
    found = read_numbers(pa.array(["1", None, "x", " 2 ", "1_000", "", "nan"], pa.string()), "x")
    assert found.wrong.tolist() == [2, 4, 5]
    assert found.present.tolist() == [True, False, True, True, True, True, True]
    assert (found.values[0], found.values[3]) == (1.0, 2.0) and np.isnan(found.values[6])


def test_a_column_of_lists_is_a_config_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="'x'"):
        read_numbers(pa.array([[1]], pa.list_(pa.int64())), "x")


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([0, 5, BIG], pa.uint64(), [0, 5, BIG]),
        ([3, 2**62], pa.int64(), [3, 2**62]),
        ([True, False], pa.bool_(), [1, 0]),
        ([str(BIG), "7"], pa.string(), [BIG, 7]),
        ([b"12"], pa.binary(), [12]),
    ],
)
def test_feasigns_of_every_kind(cells: list[Any], kind: pa.DataType, expected: list[int]) -> None:
    values, wrong = read_ids(pa.array(cells, kind))
    assert (values.tolist(), wrong.tolist()) == (expected, []) and values.dtype == np.uint64


def test_what_is_no_feasign_is_told() -> None:
    values, wrong = read_ids(pa.array([1, -1, 2], pa.int32()))
    assert wrong.tolist() == [1] and values[[0, 2]].tolist() == [1, 2]
    texts = ["1", str(BIG), str(BIG + 1), "-1", "x", "", "1.0", "9" * 5000, " 8 "]
    values, wrong = read_ids(pa.array(texts, pa.string()))
    assert wrong.tolist() == [2, 3, 4, 5, 6, 7]
    assert values[[0, 1, 8]].tolist() == [1, BIG, 8]
