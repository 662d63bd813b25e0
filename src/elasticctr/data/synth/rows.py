"""Rows of a synthetic log in strides. Row i is a function of (spec, i) alone, however many rows and files there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.schema import DenseSlot
from elasticctr.data.synth.hidden import Floats, HiddenModel, Ranks, sigmoid
from elasticctr.data.synth.spec import SynthSpec
from elasticctr.errors import ConfigError

STRIDE = 1 << 13
# Strides of this number and above are never written: the hidden model is calibrated on them.
_CALIBRATION_STRIDES = range(1 << 60, (1 << 60) + 8)
_LEAST_ROWS = 200  # that a label is calibrated on


@dataclass(frozen=True, slots=True)
class SynthSamples:
    """Samples as they are written (dense before its transform, NaN where missing) and what truly decides them."""

    batch: Batch
    logits: Floats  # [labels, n]: true log-odds of each label


class Generator:
    """A label after the first happens only where the one before did, as conversions after clicks; half of what decides
    it then is what decided the first.
    """

    def __init__(self, spec: SynthSpec) -> None:
        self.spec = spec
        self.models = [HiddenModel(spec, k) for k in range(len(spec.schema_.label))]
        draw = np.random.default_rng([spec.seed, 0xD15])
        slots, dims = len(spec.cardinalities), spec.schema_.dense_dim
        self._missing = draw.uniform(0, 2 * spec.missing, slots)
        self._dense_missing = draw.uniform(0, 2 * spec.missing, dims)
        self._log_mean = draw.uniform(0.5, 3.0, dims)
        self._log_deviation = draw.uniform(0.5, 1.0, dims)
        self._code_salts = draw.integers(0, 1 << 32, slots, dtype=np.uint64)
        for sequence, target in spec.histories:
            self._code_salts[sequence] = self._code_salts[target]
        self._calibrate([self._draw(stride) for stride in _CALIBRATION_STRIDES])

    def _calibrate(self, strides: list[_Drawn]) -> None:
        happened = np.ones(len(strides) * STRIDE, dtype=np.bool_)
        for k, model in enumerate(self.models):
            if happened.sum() < _LEAST_ROWS:
                raise ConfigError(
                    f"label {self.spec.schema_.label[k]!r} would happen too rarely to be planned; raise the share of "
                    "clicks (--ctr) or of the labels after it (--conversion)"
                )
            parts = np.concatenate([stride.parts[k] for stride in strides], axis=1)
            shares = model.shares if k == 0 else np.concatenate([model.shares, self.models[0].shares])
            # In the layout it is drawn in: sums, and so the rows of a seed, depend on it in their last bit.
            model.calibrate(np.ascontiguousarray(parts[:, happened]), shares)
            luck = np.concatenate([stride.luck[k] for stride in strides])
            happened &= luck < sigmoid(model.logits(parts))

    def rows(self, count: int, first: int = 0) -> Iterator[SynthSamples]:
        """Rows [first, first + count), at most STRIDE at a time."""
        row = first
        while row < first + count:
            stride, start = divmod(row, STRIDE)
            stop = min(STRIDE, first + count - stride * STRIDE)
            yield self._finish(self._draw(stride).slice(start, stop))
            row = stride * STRIDE + stop

    def _draw(self, stride: int) -> _Drawn:
        draw = np.random.Generator(np.random.SFC64([self.spec.seed, stride & 0xFFFFFFFF, stride >> 32]))
        ranks, counts = [], []
        for s, cardinality in enumerate(self.spec.cardinalities):
            present = draw.random(STRIDE, dtype=np.float32) >= self._missing[s]
            slot_counts = present.astype(np.int32)
            if self.spec.multi[s]:
                slot_counts *= 1 + draw.poisson(self.spec.values_mean - 1, STRIDE).astype(np.int32)
            counts.append(slot_counts)
            ranks.append(_zipf(draw.random(int(slot_counts.sum())), cardinality, self.spec.zipf))
        dense, signal = self._draw_dense(draw)
        parts = [model.parts(ranks, counts, signal) for model in self.models]
        parts = [parts[0], *(np.concatenate([own, parts[0]]) for own in parts[1:])]
        return _Drawn(ranks, counts, dense, parts, draw.random((len(parts), STRIDE)))

    def _draw_dense(self, draw: np.random.Generator) -> tuple[NDArray[np.float32], Floats]:
        """Raw values, of the kind each transform is made for, and their standardised form."""
        dims = self.spec.schema_.dense_dim
        z = draw.standard_normal((STRIDE, dims))
        missing = draw.random((STRIDE, dims), dtype=np.float32) < self._dense_missing
        raw, signal = np.empty((STRIDE, dims), dtype=np.float32), np.empty((STRIDE, dims))
        first = 0
        for slot in self.spec.schema_.dense:
            d = slice(first, first + slot.dim)
            raw[:, d], signal[:, d] = self._raw_dense(slot, d, z[:, d], missing[:, d])
            first += slot.dim
        raw[missing] = np.nan
        return raw, signal

    def _raw_dense(self, slot: DenseSlot, d: slice, z: Floats, missing: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        # A missing value reads as 0 after the transform, so that is also what it means to the hidden model.
        if slot.transform == "scale":
            unit = np.round(sigmoid(1.7 * z), 4)
            signal = (np.where(missing, 0.0, unit) - 0.5) * 3.5
            return np.asarray(slot.min) + unit * np.asarray(slot.diff), signal
        if slot.transform == "log1p":
            counts = np.floor(np.exp(self._log_mean[d] + self._log_deviation[d] * z))
            logs = np.log1p(np.where(missing, 0.0, counts))
            return counts, (logs - self._log_mean[d]) / (self._log_deviation[d] + 0.3)
        rounded = np.round(z, 4)
        return rounded, np.where(missing, 0.0, rounded)

    def _finish(self, drawn: _Drawn) -> SynthSamples:
        n = drawn.luck.shape[1]
        labels, logits = np.ones((n, len(self.models)), dtype=np.float32), np.empty((len(self.models), n))
        for k, model in enumerate(self.models):
            own = model.logits(drawn.parts[k])
            labels[:, k] = labels[:, max(k - 1, 0)] * (drawn.luck[k] < sigmoid(own))
            logits[k] = own if k == 0 else _both(logits[k - 1], own)
        ids = [self._ids(s, ranks) for s, ranks in enumerate(drawn.ranks)]
        offsets = np.zeros(len(ids) * n + 1, dtype=np.int32)
        if ids:
            np.cumsum(np.concatenate(drawn.counts), out=offsets[1:])
        values = np.concatenate(ids) if ids else np.empty(0, dtype=np.uint64)
        ones = np.ones(n, dtype=np.float32)
        return SynthSamples(Batch(self.spec.schema_, labels, drawn.dense, values, offsets, ones, ones), logits)

    def _ids(self, slot: int, ranks: Ranks) -> NDArray[np.uint64]:
        # A bijection of 32 bits, so that different ranks stay different values.
        codes: NDArray[np.uint64] = (
            ranks.astype(np.uint64) * np.uint64(0x9E3779B1) + self._code_salts[slot]
        ) & np.uint64(0xFFFFFFFF)
        codes ^= codes >> np.uint64(15)
        if self.spec.hex_slots[slot]:
            return codes
        schema = self.spec.schema_
        ids: NDArray[np.uint64] = _native.hash_hex_codes(schema.sparse[slot].hashed_as, schema.hash_seed, codes)
        return ids % np.uint64(self.spec.id_space) if self.spec.id_space else ids


@dataclass(frozen=True, slots=True)
class _Drawn:
    ranks: list[Ranks]
    counts: list[NDArray[np.int32]]
    dense: NDArray[np.float32]
    parts: list[Floats]  # of each label
    luck: Floats  # [labels, STRIDE]

    def slice(self, start: int, stop: int) -> _Drawn:
        if start == 0 and stop == self.luck.shape[1]:
            return self
        ranks = []
        for slot_ranks, counts in zip(self.ranks, self.counts, strict=True):
            low, high = int(counts[:start].sum()), int(counts[:stop].sum())
            ranks.append(slot_ranks[low:high])
        kept = [c[start:stop] for c in self.counts]
        parts = [part[:, start:stop] for part in self.parts]
        return _Drawn(ranks, kept, self.dense[start:stop], parts, self.luck[:, start:stop])


def _both(a: Floats, b: Floats) -> Floats:
    """The logit of sigmoid(a) * sigmoid(b)."""
    return np.asarray(-np.logaddexp(np.logaddexp(-a, -b), -a - b))


def _zipf(uniform: Floats, cardinality: int, exponent: float) -> Ranks:
    """Ranks from 1 with frequency about rank ** -exponent: the inverse of the continuous distribution, in place."""
    top = float(cardinality + 1)
    power = 1.0 - exponent
    if abs(power) < 1e-6:
        uniform *= np.log(top)
    else:
        uniform *= top**power - 1.0
        np.log1p(uniform, out=uniform)
        uniform /= power
    np.exp(uniform, out=uniform)
    return np.minimum(uniform.astype(np.int64), cardinality)
