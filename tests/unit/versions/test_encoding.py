"""fp16 and int8 rows: rounding, scales, and values that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import ConfigError, DataError


def test_halves_are_ieee_and_round_to_even() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[np.isfinite(every.view(np.float16))]
    floats = finite.view(np.float16).astype(np.float32)
    assert np.array_equal(_native.decode_rows(finite.view(np.uint8).reshape(-1, 2), "fp16", 1)[:, 0], floats)
    # Each half, its neighbours halfway, and a little to both sides of halfway.
    steps = np.concatenate([floats, (floats[:-1] + floats[1:]) / 2])
    values = np.concatenate([steps, np.nextafter(steps, np.float32(0)), np.nextafter(steps, np.float32(np.inf))])
    values = values[np.abs(values) < 65520].astype(np.float32)
    got = _native.encode_rows(values.reshape(-1, 1), "fp16").view(np.uint16)[:, 0]
    assert np.array_equal(got, values.astype(np.float16).view(np.uint16))


def test_bytes_have_a_scale_per_row() -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(500, 9)) * 10.0 ** rng.integers(-30, 30, (500, 1))).astype(np.float32)
    values[0] = 0
    encoded = _native.encode_rows(values, "int8")
    scales = np.ascontiguousarray(encoded[:, :4]).view(np.float32)
    assert np.array_equal(scales[:, 0], np.abs(values).max(axis=1) / np.float32(127))
    decoded = _native.decode_rows(encoded, "int8", 9)
    assert (np.abs(decoded.astype(np.float64) - values) <= 0.5001 * scales).all()
    assert not decoded[0].any()
    # Encoding what was decoded changes nothing more.
    again = _native.decode_rows(_native.encode_rows(decoded, "int8"), "int8", 9)
    assert np.allclose(again, decoded, rtol=1e-6, atol=0)


def test_floats_stay_as_they_are() -> None:
    values = np.array([[1.5, np.nan, np.inf, -0.0]], np.float32)
    encoded = _native.encode_rows(values, "fp32")
    assert encoded.tobytes() == values.tobytes()
    assert _native.decode_rows(encoded, "fp32", 4).tobytes() == values.tobytes()


@pytest.mark.parametrize("encoding", ["fp16", "int8"])
def test_what_is_not_finite_is_refused(encoding: str) -> None:
    with pytest.raises(DataError, match="do not fit"):
        _native.encode_rows(np.array([[1, np.nan]], np.float32), encoding)


def test_names_and_widths_are_checked() -> None:
    with pytest.raises(ConfigError, match="unknown encoding 'fp8'"):
        _native.encode_rows(np.zeros((1, 2), np.float32), "fp8")
    with pytest.raises(ConfigError, match="raw"):
        _native.encode_rows(np.zeros((1, 2), np.float32), "raw")
    with pytest.raises(DataError, match="4 bytes, not 5"):
        _native.decode_rows(np.zeros((1, 5), np.uint8), "fp16", 2)
