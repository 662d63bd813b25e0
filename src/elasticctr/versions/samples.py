"""samples.json: some samples as feasigns and floats, and the scores they must get. Servers check themselves by it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.errors import Corruption

SAMPLES = "samples.json"
FORMAT = 1
TOLERANCE = 1e-6  # of a score
_ROUNDINGS = 4  # two orders of summation, each with twice the rounding seen in these samples


def allow_rounding(rounding: float) -> float:
    """How far apart two float32 programs may score a sample if float32 alone moves scores by `rounding`."""
    return max(TOLERANCE, _ROUNDINGS * rounding)


def format_samples(
    batch: Batch,
    scores: NDArray[np.float32],
    trainer_scores: NDArray[np.float32],
    tolerance: float = TOLERANCE,
) -> bytes:
    """One object per sample. `scores` come from this version's rows, `trainer_scores` from the trainer's."""
    slots = [batch.slot(number) for number in range(len(batch.schema.sparse))]
    samples = []
    for i in range(len(batch)):
        sample = {
            "slots": {
                slot.name: values[offsets[i] : offsets[i + 1]].tolist()
                for slot, (values, offsets) in zip(batch.schema.sparse, slots, strict=True)
            },
            "dense": batch.dense[i].tolist(),
            "scores": scores[i].tolist(),
            "trainer_scores": trainer_scores[i].tolist(),
        }
        samples.append(json.dumps(sample, separators=(",", ":")))
    body = ",\n".join(samples)
    return f'{{"format": {FORMAT}, "tolerance": {tolerance:g}, "samples": [\n{body}\n]}}\n'.encode()


def parse_samples(data: bytes, schema: Schema, where: str) -> tuple[Batch, NDArray[np.float32]]:
    """The samples as a batch, and their scores [n, labels]."""
    try:
        samples = json.loads(data)["samples"]
        slots = [[sample["slots"].get(slot.name, []) for sample in samples] for slot in schema.sparse]
        dense = [sample["dense"] for sample in samples]
        scores = np.array([sample["scores"] for sample in samples], dtype=np.float32)
        return make_batch(schema, slots, dense), scores.reshape(len(samples), -1)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
        raise Corruption(f"{where}: not a list of samples: {e}") from None


def read_tolerance(data: bytes) -> float:
    """How far a sample's score may be from the stored one. REQUIRES: `parse_samples` has read the same bytes."""
    found = json.loads(data).get("tolerance", TOLERANCE)
    return float(found) if isinstance(found, (int, float)) and 0 < found <= 1 else TOLERANCE


def make_batch(schema: Schema, slots: Sequence[Sequence[Sequence[int]]], dense: Sequence[Sequence[float]]) -> Batch:
    """A batch of feasigns by slot and sample, and dense floats by sample. Labels are 0."""
    n = len(dense)
    values = np.array([v for slot in slots for sample in slot for v in sample], dtype=np.uint64)
    lengths = [len(sample) for slot in slots for sample in slot]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    return Batch(
        schema,
        np.zeros((n, len(schema.label)), dtype=np.float32),
        np.array(dense, dtype=np.float32).reshape(n, schema.dense_dim),
        values,
        offsets,
        np.ones(n, dtype=np.float32),
        np.ones(n, dtype=np.float32),
    )
