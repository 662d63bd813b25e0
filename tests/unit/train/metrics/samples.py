"""Random logits with labels that follow them."""

from __future__ import annotations

import numpy as np


def make_samples(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=n) * 1.3 - 2).astype(np.float32)
    labels = (rng.random(n) < 1 / (1 + np.exp(-0.8 * logits + 0.1))).astype(np.float32)
    weights = rng.uniform(0.1, 3, n).astype(np.float32)
    return logits, labels, weights


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))
