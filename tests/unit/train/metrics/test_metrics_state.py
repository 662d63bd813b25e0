"""States merge, are saved and restored to the same bits; a damaged one is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.unit.train.metrics.samples import make_samples

from elasticctr import _native
from elasticctr.errors import Corruption
from elasticctr.train.metrics.metrics import Metrics


def test_any_grouping_and_order_gives_the_same_bits() -> None:
    logits, labels, weights = make_samples(20_000, seed=3)
    groups = np.random.default_rng(4).integers(0, 900, len(logits)).astype(np.uint64) + np.uint64(2**63)
    whole = Metrics()
    whole.update(logits, labels, weights, groups)
    order = np.random.default_rng(5).permutation(len(logits))
    parts = []
    for part in np.array_split(order, 11):
        metrics = Metrics()
        for piece in np.array_split(part, 7):
            metrics.update(logits[piece], labels[piece], weights[piece], groups[piece])
        parts.append(metrics)
    merged = Metrics()
    for metrics in reversed(parts):
        merged.merge(metrics)
    assert merged.state() == whole.state()
    assert merged.compute() == whole.compute()
    assert merged.curves() == whole.curves()


def test_saved_and_restored_goes_on_as_if_uninterrupted() -> None:
    logits, labels, weights = make_samples(3000)
    groups = (np.arange(3000) % 50).astype(np.uint64)
    straight, interrupted = Metrics(window=7), Metrics(window=7)
    for i, rows in enumerate(np.array_split(np.arange(3000), 20)):
        straight.update(logits[rows], labels[rows], weights[rows] if i % 2 else None, groups[rows])
        interrupted.update(logits[rows], labels[rows], weights[rows] if i % 2 else None, groups[rows])
        if i in (3, 12):
            interrupted = Metrics.from_state(interrupted.state(), window=7)
    assert interrupted.state() == straight.state()
    assert interrupted.compute() == straight.compute()
    assert interrupted.compute_window() == straight.compute_window()
    assert Metrics.from_state(straight.state(), window=3).compute_window().samples == 450  # a smaller window now


def test_states_of_the_first_format_are_read() -> None:
    logits, labels, weights = make_samples(500)
    metrics = Metrics()
    metrics.update(logits, labels, weights)
    state = metrics.state()
    head, rest, buckets, at = state[8:96], state[96 : -4 - 16], [], 0

    def number() -> int:
        nonlocal rest
        end = next(i for i, byte in enumerate(rest) if byte < 0x80) + 1
        value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(rest[:end]))
        rest = rest[end:]
        return value

    def weight() -> int:
        coded = number()
        return coded >> 1 if coded & 1 else (coded >> 1) << 20

    for _ in range(struct.unpack_from("<Q", head, 80)[0]):
        at += number()
        buckets.append(struct.pack("<IQQ", at, weight(), weight()))
    assert not rest and len(buckets) > 100
    body = head[:4] + struct.pack("<I", 1) + head[8:] + b"".join(buckets)
    body += struct.pack("<I", _native.crc32c(body))
    old = struct.pack("<Q", len(body)) + body + state[-16:]
    assert Metrics.from_state(old).state() == state


def test_damaged_state_is_corruption() -> None:
    metrics = Metrics(window=2)
    metrics.update(np.array([1.0, 2.0]), np.array([0.0, 1.0]), groups=np.array([1, 2], np.uint64))
    state = metrics.state()
    for i in range(len(state)):
        damaged = bytearray(state)
        damaged[i] ^= 0x20
        with pytest.raises(Corruption):
            Metrics.from_state(bytes(damaged), window=2)
    for size in range(len(state)):
        with pytest.raises(Corruption):
            Metrics.from_state(state[:size])
    with pytest.raises(Corruption):
        Metrics.from_state(state + b"x")
