"""Scores samples with the files of a version alone: rows, schema.json and the ONNX graph. No torch, no trainer.

Slow and plain: it is what checks use (publishing, `elasticctr versions verify`), and a reference for servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.derive import Deriver
from elasticctr.errors import ConfigError, Corruption
from elasticctr.versions.serving_schema import PooledSlot, SequenceSlot, ServingSchema

Floats = NDArray[np.float32]
# (table, feasigns) -> [n, dim] rows, zeros for those without one, and which have one
RowSource = Callable[[str, NDArray[np.uint64]], tuple[Floats, NDArray[np.bool_]]]


def make_inputs(schema: ServingSchema, batch: Batch, rows: RowSource) -> dict[str, NDArray[Any]]:
    """The inputs of the dense graph for a batch, bit for bit as the trainer would make them."""
    n = len(batch)
    inputs: dict[str, NDArray[Any]] = {}
    by_table = _look_up(schema, batch, rows)
    if schema.pooled_width:
        pooled = np.zeros((n, schema.pooled_width), dtype=np.float32)
        for slot in schema.pooled:
            _pool(slot, *by_table[slot.number], pooled)
        inputs["pooled"] = pooled
    if schema.dense_width:
        inputs["dense"] = np.ascontiguousarray(batch.dense, dtype=np.float32)
    for sequence in schema.sequences:
        inputs[sequence.input], inputs[sequence.lengths] = _sequence(sequence, n, *by_table[sequence.number])
    return inputs


def _look_up(schema: ServingSchema, batch: Batch, rows: RowSource) -> dict[int, tuple[Floats, NDArray[np.int32]]]:
    """For each slot with rows: the row of each of its values, and the offsets of samples."""
    all_slots = Deriver(schema.samples).whole(batch)
    found: dict[int, tuple[Floats, NDArray[np.int32]]] = {}
    slots: list[PooledSlot | SequenceSlot] = [*schema.pooled, *schema.sequences]
    for table in schema.tables:
        members = [slot for slot in slots if slot.table == table]
        values = [all_slots.slot(slot.number) for slot in members]
        if not members:
            continue
        unknown = np.array([slot.oov for slot in members if slot.oov is not None], dtype=np.uint64)
        distinct, inverse = np.unique(np.concatenate([*(v for v, _ in values), unknown]), return_inverse=True)
        table_rows, is_there = rows(table, distinct)
        start = 0
        for slot, (v, offsets) in zip(members, values, strict=True):
            places = inverse[start : start + len(v)]
            if slot.oov is not None:
                places = np.where(is_there[places], places, np.searchsorted(distinct, np.uint64(slot.oov)))
            found[slot.number] = table_rows[places], offsets
            start += len(v)
    return found


def _pool(slot: PooledSlot, rows: Floats, offsets: NDArray[np.int32], pooled: Floats) -> None:
    lengths = np.diff(offsets)
    for piece in slot.pieces:
        sums = np.zeros((len(lengths), piece.dim), dtype=np.float32)
        weights = rows[:, piece.row : piece.row + piece.dim]
        # Value by value, so that sums round in the trainer's order.
        for k in range(int(lengths.max(initial=0))):
            has = lengths > k
            sums[has] += weights[offsets[:-1][has] + k]
        if slot.pooling == "mean":
            several = lengths > 1
            sums[several] *= (np.float32(1) / lengths[several].astype(np.float32))[:, None]
        pooled[:, piece.column : piece.column + piece.dim] = sums


def _sequence(slot: SequenceSlot, n: int, rows: Floats, offsets: NDArray[np.int32]) -> tuple[Floats, NDArray[np.int64]]:
    values = np.zeros((n, slot.max_values, slot.dim), dtype=np.float32)
    lengths = np.minimum(np.diff(offsets), slot.max_values).astype(np.int64)
    for i, length in enumerate(lengths.tolist()):
        values[i, :length] = rows[offsets[i + 1] - length : offsets[i + 1], slot.row : slot.row + slot.dim]
    return values, lengths


class DenseGraph:
    """The ONNX graph of a version."""

    def __init__(self, model: bytes, where: str) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ConfigError("scoring needs ONNX Runtime; install it with: pip install onnxruntime") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as e:
            raise Corruption(f"{where}: ONNX Runtime cannot load it: {e}") from None

    def scores(self, inputs: Mapping[str, NDArray[Any]]) -> Floats:
        """[n, labels]"""
        (scores,) = self._session.run(["scores"], dict(inputs))
        return np.asarray(scores, dtype=np.float32).reshape(len(scores), -1)
