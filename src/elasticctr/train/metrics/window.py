"""The samples of the last batches, kept for recent metrics. Saved with checkpoints, so that a resumed
run reports the same windowed numbers as one that was never interrupted.
"""

from __future__ import annotations

import struct
from collections import deque

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import Corruption

Floats = NDArray[np.float32]

_HEAD = struct.Struct("<4sII")  # magic, format, batches
_BATCH = struct.Struct("<II")  # samples, whether weights follow logits and labels
_MAGIC, _FORMAT = b"ECMW", 1


class MetricWindow:
    """The last `batches` batches of logits, labels and weights. 0: keeps nothing."""

    def __init__(self, batches: int) -> None:
        self._batches: deque[tuple[Floats, Floats, Floats | None]] = deque(maxlen=max(batches, 0))

    @property
    def is_kept(self) -> bool:
        return bool(self._batches.maxlen)

    def append(self, logits: Floats, labels: Floats, weights: Floats | None) -> None:
        """Keeps copies: callers reuse their buffers."""
        self._batches.append((logits.copy(), labels.copy(), None if weights is None else weights.copy()))

    def samples(self) -> tuple[Floats, Floats, Floats | None]:
        """All of them concatenated; weights only if any batch had them."""
        none = [np.empty(0, np.float32)]
        logits = np.concatenate([x for x, _, _ in self._batches] or none)
        labels = np.concatenate([y for _, y, _ in self._batches] or none)
        if all(w is None for _, _, w in self._batches):
            return logits, labels, None
        return logits, labels, np.concatenate([np.ones_like(y) if w is None else w for _, y, w in self._batches])

    def state(self) -> bytes:
        """docs/reference/model-metrics.md is its specification. Empty if nothing is kept."""
        if not self.is_kept:
            return b""
        parts = [_HEAD.pack(_MAGIC, _FORMAT, len(self._batches))]
        for logits, labels, weights in self._batches:
            parts += [_BATCH.pack(len(logits), weights is not None), logits.tobytes(), labels.tobytes()]
            parts += [] if weights is None else [weights.tobytes()]
        body = b"".join(parts)
        return body + struct.pack("<I", _native.crc32c(body))

    def restore(self, state: bytes) -> None:
        """Restores as many saved batches as this window keeps. Raises Corruption."""
        self._batches.clear()
        if not state:
            return
        body = state[:-4]
        if len(state) < _HEAD.size + 4 or struct.pack("<I", _native.crc32c(body)) != state[-4:]:
            raise Corruption("the saved window of metrics is damaged; use an older checkpoint")
        magic, version, batches = _HEAD.unpack_from(body)
        if magic != _MAGIC or version != _FORMAT:
            raise Corruption("the saved window of metrics has an unknown format; use an older checkpoint")
        at = _HEAD.size
        for _ in range(batches):
            size, has_weights = _BATCH.unpack_from(body, at)
            columns = 2 + has_weights
            arrays = np.frombuffer(body, np.float32, size * columns, at + _BATCH.size).reshape(columns, size)
            self.append(arrays[0], arrays[1], arrays[2] if has_weights else None)
            at += _BATCH.size + arrays.nbytes
