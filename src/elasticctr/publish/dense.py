"""The torch side of publishing: a learner's serving schema, its ONNX graph and its scores."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.models.export import export_onnx, input_names
from elasticctr.models.inputs import Inputs, Sequence
from elasticctr.models.model import Model, evaluating
from elasticctr.table import Table
from elasticctr.train.learner import Learner
from elasticctr.train.prediction import sigmoid
from elasticctr.train.reading import PreparedBatch
from elasticctr.versions.serving_schema import (
    DenseColumns,
    FeatureHash,
    PooledSlot,
    RowPart,
    SequenceSlot,
    ServingSchema,
    TableSchema,
)


def make_serving_schema(learner: Learner, samples: Schema) -> ServingSchema:
    spec = learner.sparse.spec
    pooled: list[PooledSlot] = []
    sequences: list[SequenceSlot] = []
    for place in learner.plan.slots:
        rows = learner.sparse.tables[place.table]
        starts = _row_starts(rows)
        dims = {segment.name: segment.dim for segment in rows.settings.segments}
        name, table = place.slot.name, rows.settings.name
        if place.sequence is None:
            pieces = tuple(
                RowPart(segment=segment, row=starts[segment], dim=dims[segment], column=column)
                for segment, column in place.columns.items()
            )
            pooled.append(
                PooledSlot(
                    slot=name,
                    number=place.number,
                    table=table,
                    pooling="mean" if place.slot.pooling == "mean" else "sum",
                    max_values=place.slot.max_values,
                    pieces=pieces,
                    oov=learner.plan.oov[place.number],
                )
            )
        else:
            sequences.append(
                SequenceSlot(
                    slot=name,
                    number=place.number,
                    table=table,
                    input=f"seq_{name}",
                    lengths=f"seq_{name}_lengths",
                    row=starts["embedding"],
                    dim=dims["embedding"],
                    max_values=place.sequence.max_values,
                    oov=learner.plan.oov[place.number],
                )
            )
    dense, column = [], 0
    for slot in samples.dense:
        dense.append(DenseColumns(slot=slot.name, column=column, dim=slot.dim))
        column += slot.dim
    return ServingSchema(
        network=learner.model.name,
        fingerprint=samples.fingerprint(),
        feature_hash=FeatureHash(seed=samples.hash_seed),
        samples=samples,
        labels=samples.label,
        pooled_width=spec.pooled_width,
        dense_width=spec.dense_dim,
        pooled=tuple(sorted(pooled, key=lambda slot: slot.number)),
        sequences=tuple(sorted(sequences, key=lambda slot: slot.number)),
        dense=tuple(dense),
        tables={
            table.settings.name: TableSchema(dim=sum(segment.dim for segment in table.settings.segments))
            for table in learner.sparse.tables
        },
    )


def _row_starts(table: Table) -> dict[str, int]:
    starts, start = {}, 0
    for segment in table.settings.segments:
        starts[segment.name] = start
        start += segment.dim
    return starts


def make_onnx(learner: Learner, *, optimize: bool = True) -> bytes:
    with tempfile.TemporaryDirectory(prefix="elasticctr-") as directory:
        path = Path(directory, "model.onnx")
        export_onnx(learner.host_model(), path, optimize=optimize)
        return path.read_bytes()


class GraphTemplate:
    """A graph exported once whose parameters are then replaced: milliseconds instead of seconds."""

    def __init__(self, learner: Learner) -> None:
        self._graph = onnx.load_from_string(make_onnx(learner, optimize=False))

    def fill(self, learner: Learner) -> bytes | None:
        """The graph with the learner's current parameters; None if the graph lacks one of them."""
        initializers = {tensor.name: tensor for tensor in self._graph.graph.initializer}
        for name, value in learner.host_model().state_dict().items():
            tensor = initializers.get(f"model.{name}")
            array = np.ascontiguousarray(value.detach().numpy())
            if tensor is None or len(tensor.raw_data) != array.nbytes:
                return None
            tensor.raw_data = array.tobytes()
        data: bytes = self._graph.SerializeToString()
        return data


def score_batch(learner: Learner, batch: Batch) -> NDArray[np.float32]:
    """The trainer's own scores of a batch, in float32 whatever precision it trains in. [n, labels]"""
    inputs = learner.sparse.pull(PreparedBatch(batch, learner.look_up(batch), {}), train=False)
    return _score(learner.host_model(), inputs)


def score_inputs(learner: Learner, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Scores of ready-made inputs of the dense graph. [n, labels]"""
    return _score(learner.host_model(), _as_inputs(learner, inputs))


def measure_rounding(learner: Learner, inputs: Mapping[str, NDArray[Any]]) -> float:
    """How far float32 rounding moves the scores of these inputs from those of the same model in float64; 0 if the
    model does not run in float64."""
    exact = copy.deepcopy(learner.host_model()).double()
    wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in inputs.items()}
    try:
        wanted = _score(exact, _as_inputs(learner, wide))
    except (RuntimeError, TypeError):
        return 0.0
    apart = np.abs(score_inputs(learner, inputs) - wanted)
    return float(apart.max(initial=0.0)) if np.isfinite(apart).all() else 0.0


def _as_inputs(learner: Learner, inputs: Mapping[str, NDArray[Any]]) -> Inputs:
    spec = learner.sparse.spec
    tensors = [torch.from_numpy(inputs[name]) for name in input_names(spec)]
    parts = [tensors.pop(0) for width in (spec.pooled_width, spec.dense_dim) if width > 0]
    sequences = {s.name: Sequence(tensors.pop(0), tensors.pop(0)) for s in spec.sequences}
    count = len(next(iter(inputs.values())))
    flat = torch.cat(parts, dim=1) if parts else torch.zeros(count, 0)
    return Inputs(spec, flat, sequences)


def _score(model: Model, inputs: Inputs) -> NDArray[np.float32]:
    with evaluating(model):
        logits = model(inputs).numpy()
    return sigmoid(logits.reshape(len(logits), -1))
