"""The window: what it keeps, forgets, saves and refuses."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import Corruption
from elasticctr.train.metrics.window import MetricWindow


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_keeps_the_last_batches_as_copies() -> None:
    window = MetricWindow(2)
    buffer = floats(1, 2)
    for value in (10, 20, 30):
        buffer[:] = value
        window.append(buffer, buffer + 1, None)
    logits, labels, weights = window.samples()
    assert logits.tolist() == [20, 20, 30, 30] and labels.tolist() == [21, 21, 31, 31] and weights is None


def test_batches_without_weights_weigh_one() -> None:
    window = MetricWindow(2)
    window.append(floats(1), floats(0), floats(2.5))
    window.append(floats(1), floats(0), None)
    weights = window.samples()[2]
    assert weights is not None and weights.tolist() == [2.5, 1.0]


def test_a_window_of_nothing() -> None:
    window = MetricWindow(0)
    window.append(floats(1), floats(1), None)
    assert not window.is_kept and window.state() == b"" and len(window.samples()[0]) == 0
    window.restore(b"")


def test_saved_batches_come_back_with_empty_ones() -> None:
    window, other = MetricWindow(3), MetricWindow(3)
    window.append(floats(1, 2), floats(0, 1), floats(3, 4))
    window.append(floats(), floats(), None)
    window.append(floats(5), floats(1), None)
    other.restore(window.state())
    assert other.state() == window.state()
    assert [part.tolist() for part in other.samples() if part is not None] == [[1, 2, 5], [0, 1, 1], [3, 4, 1]]


@pytest.mark.parametrize("head", [b"XXXX\x01\0\0\0\0\0\0\0", b"ECMW\x02\0\0\0\0\0\0\0"])
def test_another_format_is_refused(head: bytes) -> None:
    with pytest.raises(Corruption, match="unknown format"):
        MetricWindow(1).restore(head + struct.pack("<I", _native.crc32c(head)))


def test_damage_is_refused() -> None:
    window = MetricWindow(1)
    window.append(floats(1, 2), floats(0, 1), None)
    state = window.state()
    for i in range(len(state)):
        damaged = bytearray(state)
        damaged[i] ^= 1
        with pytest.raises(Corruption):
            MetricWindow(1).restore(bytes(damaged))
