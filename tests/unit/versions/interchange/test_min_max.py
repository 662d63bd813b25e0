"""8-bit rows of Paddle's tools: the readers' formula, byte for byte, and an encoder that agrees with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import DataError
from elasticctr.versions.interchange import open_rows
from elasticctr.versions.interchange.min_max import decode, encode
from elasticctr.versions.interchange.sequence_writer import SequenceWriter


def test_decoding_follows_the_readers_formula() -> None:
    row = np.concatenate([np.array([-1.0, 3.0], "<f4").view(np.uint8), np.array([0, 1, 128, 255], np.uint8)])
    assert decode(row[None]).tolist() == [[-1.0, -1.0 + 4 / 256, 1.0, -1.0 + 255 * 4 / 256]]


def test_encoding_is_exact_at_both_ends_and_within_half_a_step() -> None:
    values = np.random.default_rng(1).normal(size=(500, 16)).astype(np.float32)
    values[7] = 0.25
    decoded = decode(encode(values))
    step = np.ptp(values.astype(np.float64), axis=1, keepdims=True) / 255
    assert (np.abs(decoded - values.astype(np.float64)) <= step * 0.5001 + 1e-6).all()
    assert np.allclose(decoded.max(axis=1), values.max(axis=1), rtol=1e-6, atol=1e-6)
    assert np.array_equal(decoded.min(axis=1), values.min(axis=1))
    assert np.array_equal(decoded[7], values[7])


def test_quantised_sequence_file_is_read_as_floats(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=(100, 9)).astype(np.float32)
    rows = encode(values)
    with (tmp_path / "a.seq").open("wb") as file:
        SequenceWriter(file, rows.shape[1]).write(np.arange(100, dtype=np.uint64), rows)
    source = open_rows(str(tmp_path / "a.seq"), "min_max")
    assert (source.info.encoding, source.info.dim, source.info.row_bytes) == ("fp32", 9, 36)
    ((feasigns, read),) = source.blocks()
    assert feasigns.tolist() == list(range(100))
    assert np.array_equal(read.view(np.float32), decode(rows))
    with pytest.raises(DataError, match="values of 17 bytes cannot be floats"):
        open_rows(str(tmp_path / "a.seq"))


def test_a_range_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    rows = encode(np.ones((3, 4), np.float32))
    rows[1, :4] = np.array([np.nan], "<f4").view(np.uint8)
    with (tmp_path / "a.seq").open("wb") as file:
        SequenceWriter(file, rows.shape[1]).write(np.arange(3, dtype=np.uint64), rows)
    with pytest.raises(DataError, match="feasign 1 "):
        list(open_rows(str(tmp_path / "a.seq"), "min_max").blocks())
