"""A pass over a split: which chunks are scored, and the metrics of those that are.

The coordinator counts trainers' reports into it; the executor creates it, waits for its end and reads the result. It
knows neither members nor the run, and has no lock of its own: the coordinator's holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticctr.data.chunks import Chunk
from elasticctr.ps.coordinator.ledger import Ledger
from elasticctr.train.metrics.label_metrics import LabelMetrics


class Evaluation:
    """A chunk's metrics count when all of it was scored."""

    def __init__(self, split: str, chunks: list[Chunk], labels: Sequence[str]) -> None:
        self.split = split
        self.ledger = Ledger(chunks)
        self.metrics = LabelMetrics(labels)
        self._held: dict[int, list[bytes]] = {}  # of chunks under way, as reported

    def hold(self, chunk_id: int, metrics: bytes | None) -> None:
        """`metrics`: a state that was checked."""
        if metrics is not None:
            self._held.setdefault(chunk_id, []).append(metrics)

    def count(self, chunk_id: int, metrics: bytes | None) -> None:
        """A chunk is done; `metrics` are what was not reported before."""
        self.hold(chunk_id, metrics)
        for state in self._held.pop(chunk_id, ()):
            self.metrics.merge_state(state)

    def forget(self, chunk_ids: list[int]) -> None:
        """These are scored from their beginning again."""
        for chunk_id in chunk_ids:
            self._held.pop(chunk_id, None)
