"""Confidence intervals by the Poisson bootstrap, thin over the native one: of AUC and logloss of a model, and of the
difference between two models on the same samples. docs/reference/model-metrics.md says what they mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import ConfigError

Array = NDArray[Any]
_NAMES = ("auc", "logloss")


class Bootstrap:
    """Keeps every sample (16 bytes). `is_paired`: a second model's logits come with each batch."""

    def __init__(self, replicates: int, *, seed: int = 0, is_paired: bool = False) -> None:
        if replicates < 2:
            raise ConfigError(f"a bootstrap needs 2 replicates at least, better some hundred; {replicates} is too few")
        self.replicates = replicates
        self.seed = seed
        self._native = _native.Bootstrap(is_paired)

    def update(self, logits: Array, labels: Array, weights: Array | None = None, others: Array | None = None) -> None:
        self._native.update(
            _floats(logits),
            _floats(labels),
            None if weights is None else _floats(weights),
            None if others is None else _floats(others),
        )

    def merge(self, other: Bootstrap) -> None:
        self._native.merge(other._native)

    def state(self) -> bytes:
        return self._native.state()

    def restore(self, state: bytes) -> None:
        """Replaces what was seen so far by a saved state. Raises Corruption, FailedPrecondition."""
        self._native.restore(state)

    def intervals(self, level: float = 0.95) -> dict[str, Any]:
        """JSON-able: for `auc` and `logloss` {value, mean, sd, lo, hi}. Of two models also `other`, the second model's,
        and `difference`, this model's less the other's, with `is_clear`: whether 0 lies outside of it.
        """
        estimate = self._native.estimate()[0]
        drawn = self._native.draw(self.replicates, self.seed)
        result: dict[str, Any] = {"replicates": self.replicates, "seed": self.seed, "level": level}
        result |= {name: _interval(estimate[i], drawn[:, i], level) for i, name in enumerate(_NAMES)}
        if self._native.is_paired:
            result["other"] = {
                name: _interval(estimate[i + 2], drawn[:, i + 2], level) for i, name in enumerate(_NAMES)
            }
            result["difference"] = {
                name: _difference(estimate[i] - estimate[i + 2], drawn[:, i] - drawn[:, i + 2], level)
                for i, name in enumerate(_NAMES)
            }
        return result


def _interval(value: float, drawn: NDArray[np.float64], level: float) -> dict[str, Any]:
    """Percentiles of the replicates in which the value is defined."""
    defined = drawn[~np.isnan(drawn)]
    if np.isnan(value) or len(defined) < 2:
        return dict.fromkeys(("value", "mean", "sd", "lo", "hi"))
    lo, hi = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return {
        "value": float(value),
        "mean": float(defined.mean()),
        "sd": float(defined.std(ddof=1)),
        "lo": float(lo),
        "hi": float(hi),
    }


def _difference(value: float, drawn: NDArray[np.float64], level: float) -> dict[str, Any]:
    interval = _interval(value, drawn, level)
    is_clear = interval["lo"] is not None and (interval["lo"] > 0 or interval["hi"] < 0)
    return {**interval, "is_clear": is_clear}


def _floats(array: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
