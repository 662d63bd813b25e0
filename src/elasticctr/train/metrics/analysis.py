"""What an evaluation may compute besides the metrics: confidence, a second model on the same samples, worst segments.

`evaluate` feeds it each batch with its logits and puts `results` beside the metrics. It looks at one label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.bootstrap import Bootstrap
from elasticctr.train.metrics.segments import SegmentOrder, SlotSegments, report_segments
from elasticctr.train.reading import PreparedBatch


class Analysis:
    def __init__(
        self,
        schema: Schema,
        *,
        label: str | None = None,
        segments: Sequence[str] = (),
        segments_by: SegmentOrder = "calibration",
        min_samples: int = 500,
        replicates: int | None = None,
        seed: int = 0,
        against: Learner | None = None,
    ) -> None:
        self.label = find_label(schema, label)
        self._min_samples = min_samples
        self._slots = {name: (find_slot(schema, name), SlotSegments(segments_by)) for name in segments}
        self._against = against
        if against is not None and against.identity["schema"] != schema.fingerprint():
            raise FailedPrecondition(
                "the two runs were trained with different schemas; only models of one schema can read the same samples"
            )
        self._bootstrap: Bootstrap | None = None
        if replicates is not None or against is not None:
            self._bootstrap = Bootstrap(replicates or 500, seed=seed, is_paired=against is not None)

    def update(self, batch: Batch, logits: NDArray[np.float32]) -> None:
        """Adds a batch; logits are [n] or [n, labels]."""
        own, labels = _column(logits, self.label), batch.labels[:, self.label]
        if self._bootstrap is not None:
            others = None
            if self._against is not None:
                others = _column(
                    self._against.predict(PreparedBatch(batch, self._against.look_up(batch), {})), self.label
                )
            self._bootstrap.update(own, labels, batch.weights, others)
        for number, segments in self._slots.values():
            segments.update(*batch.slot(number), own, labels, batch.weights)

    def results(self) -> dict[str, Any]:
        """`confidence` and `segments`, as far as they were asked for."""
        found: dict[str, Any] = {}
        if self._bootstrap is not None:
            found["confidence"] = self._bootstrap.intervals()
        if self._slots:
            slots = {name: segments for name, (_, segments) in self._slots.items()}
            found["segments"] = report_segments(slots, min_samples=self._min_samples)
        return found


def find_slot(schema: Schema, name: str) -> int:
    """The number of a slot among the sparse ones."""
    names = [slot.name for slot in schema.sparse]
    if name not in names:
        raise ConfigError(f"{name!r} is not a sparse slot of the schema; it has {', '.join(names)}")
    return names.index(name)


def find_label(schema: Schema, name: str | None) -> int:
    """The column of a label; of the first one without a name."""
    names = list(schema.label)
    if name is not None and name not in names:
        raise ConfigError(f"{name!r} is not a label of the schema; it has {', '.join(names)}")
    return 0 if name is None else names.index(name)


def _column(logits: NDArray[np.float32], number: int) -> NDArray[np.float32]:
    return logits if logits.ndim == 1 else logits[:, number]
