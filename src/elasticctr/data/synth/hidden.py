"""The model that decides who clicks: an effect per id, a few pairs of slots that act together, a linear dense part,
and whether a history holds its target.

Every number in it is a hash of (seed, slot, id), so it is the same for a thousand rows and for a billion and needs no
memory. Rare ids have small effects, as a log that can be learned from has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.mixing import mix64
from elasticctr.data.schema import Pooling
from elasticctr.data.synth.spec import SynthSpec

Floats = NDArray[np.float64]
Ranks = NDArray[np.int64]

# Shares of the variance of the log-odds.
MAIN, PAIRS, DENSE, HISTORY = 0.6, 0.15, 0.25, 0.6
# Ids beyond this rank matter less and less: they are seen too rarely to learn more about them.
COMMON_RANK = 20.0
# Slots that act together have few enough values for their pairs to repeat.
PAIR_CARDINALITY = 700
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class HiddenModel:
    """Log-odds of rows, up to the scale and bias that `calibrate` sets from a sample of rows."""

    def __init__(self, spec: SynthSpec, label: int = 0) -> None:
        self.spec = spec
        draw = np.random.default_rng([spec.seed, 0x5EED, label] if label else [spec.seed, 0x5EED])
        self.rate = spec.conversion if label else spec.ctr
        slots, dims = len(spec.cardinalities), spec.schema_.dense_dim
        self.slot_weights = draw.lognormal(0.0, 1.0, slots)
        self.dense_weights = draw.normal(size=dims)
        self.salts = draw.integers(1, 1 << 62, size=2 * slots, dtype=np.uint64)
        candidates = [s for s, c in enumerate(spec.cardinalities) if 2 < c <= PAIR_CARDINALITY and not spec.multi[s]]
        order = draw.permutation(candidates) if candidates else np.array([], dtype=np.int64)
        self.pairs = [(int(a), int(b)) for a, b in zip(order[0::2], order[1::2], strict=False)][: spec.interactions]
        self.shares = np.array([MAIN, PAIRS, DENSE, HISTORY] if spec.histories else [MAIN, PAIRS, DENSE])
        self.scales = np.ones(len(self.shares))
        self.bias = 0.0

    def parts(self, ranks: Sequence[Ranks], counts: Sequence[NDArray[np.int32]], dense: Floats) -> Floats:
        """[3 or 4, n]: main effects, pairs, dense part, histories of each row, unscaled. `dense` has unit variance."""
        n = len(dense)
        result = np.zeros((len(self.shares), n))
        for s, (slot_ranks, slot_counts) in enumerate(zip(ranks, counts, strict=True)):
            effects = self._effects(s, slot_ranks) * self.slot_weights[s]
            result[0] += self._pool(s, effects, slot_counts)
        for a, b in self.pairs:
            # A missing partner silences the pair: its latent vector is zero.
            latent = self._latent(a, ranks[a], counts[a]) * self._latent(b, ranks[b], counts[b])
            result[1] += latent[:, 0] + latent[:, 1] + latent[:, 2] + latent[:, 3]
        # Sums in a fixed order, unlike a matrix product: a row is the same on every machine.
        for d, weight in enumerate(self.dense_weights):
            result[2] += dense[:, d] * weight
        for sequence, target in self.spec.histories:
            result[3] += self._found(sequence, target, ranks, counts)
        return result

    def logits(self, parts: Floats) -> Floats:
        total = self.scales[0] * parts[0]
        for scale, part in zip(self.scales[1:], parts[1:], strict=True):
            total = total + scale * part
        return np.asarray(total + self.bias)

    def calibrate(self, parts: Floats, shares: Floats) -> None:
        """Sets scales and bias so that rows like these have the wanted share of clicks and attainable AUC, and each
        part its share of the variance.
        """
        deviations = parts.std(axis=1)
        shares = np.sqrt(shares) * (deviations > 1e-9)
        unit = shares / np.maximum(deviations, 1e-9) / max(float(np.sqrt((shares**2).sum())), 1e-9)
        ordered = np.sort(unit @ parts)
        low, high = 0.0, 16.0
        for _ in range(18):
            middle = (low + high) / 2
            if _expected_auc(ordered * middle, self.rate) < self.spec.auc:
                low = middle
            else:
                high = middle
        self.scales = unit * high
        self.bias = _bias(ordered * high, self.rate)

    def _effects(self, slot: int, ranks: Ranks) -> Floats:
        h = mix64(ranks.astype(np.uint64) * _GOLDEN + self.salts[slot])
        uniform = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5
        uniform *= np.sqrt(12 * COMMON_RANK / (COMMON_RANK + ranks))
        return uniform

    def _latent(self, slot: int, ranks: Ranks, counts: NDArray[np.int32]) -> NDArray[np.float32]:
        h = mix64(ranks.astype(np.uint64) * _GOLDEN + self.salts[slot + len(self.slot_weights)])
        lanes = h.view(np.uint16).reshape(-1, 4).astype(np.float32)
        lanes -= 32767.5
        lanes *= np.sqrt(COMMON_RANK / (COMMON_RANK + ranks))[:, None]
        result = np.zeros((len(counts), 4), dtype=np.float32)
        result[counts > 0] = lanes / 32768
        return result

    def _found(self, sequence: int, target: int, ranks: Sequence[Ranks], counts: Sequence[NDArray[np.int32]]) -> Floats:
        """1 where the target is among the values kept of a sequence, else 0."""
        n, lengths = len(counts[target]), counts[sequence]
        wanted = np.zeros(n, dtype=np.int64)  # no rank
        wanted[counts[target] > 0] = ranks[target]
        rows = np.repeat(np.arange(n), lengths)
        from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(rows))  # 1: the last one
        kept = self.spec.schema_.sparse[sequence].max_values
        is_found = (ranks[sequence] == wanted[rows]) & (from_end <= kept)
        return np.asarray(np.bincount(rows[is_found], minlength=n) > 0, dtype=np.float64)

    def _pool(self, slot: int, effects: Floats, counts: NDArray[np.int32]) -> Floats:
        if not self.spec.multi[slot]:
            result = np.zeros(len(counts))
            result[counts > 0] = effects
            return result
        rows = np.repeat(np.arange(len(counts)), counts)
        sums = np.bincount(rows, effects, minlength=len(counts))
        if self.spec.schema_.sparse[slot].pooling is Pooling.SUM:
            return np.asarray(sums / np.sqrt(self.spec.values_mean))
        return np.asarray(sums / np.maximum(counts, 1))


def _bias(logits: Floats, ctr: float) -> float:
    low, high = -40.0, 40.0
    for _ in range(30):
        middle = (low + high) / 2
        if np.mean(sigmoid(logits + middle)) < ctr:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _expected_auc(ordered: Floats, ctr: float) -> float:
    """AUC of rows sorted by log-odds, each counted as positive by its probability and as negative by the rest."""
    p = sigmoid(ordered + _bias(ordered, ctr))
    negatives_below = np.cumsum(1 - p) - (1 - p) / 2
    return float(np.sum(p * negatives_below) / (np.sum(p) * np.sum(1 - p)))


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))
