"""The samples an explanation is made from, as the model sees them: held in memory, cut into the parts of each slot.

A part is what of the model's inputs comes from one slot: columns of the flat tensor, or a sequence. Putting another
sample's part in its place is the same as exchanging the slot's values, because rows are pooled sample by sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import DenseSlot, Schema
from elasticctr.errors import DataError
from elasticctr.models.inputs import Inputs, InputSpec, Sequence
from elasticctr.train.input_plan import InputPlan
from elasticctr.train.learner import Learner
from elasticctr.train.reading import read_ahead


@dataclass(frozen=True, slots=True)
class SlotInput:
    """Where one slot is in a model's inputs."""

    slot: str
    columns: tuple[int, ...]  # of `Inputs.flat`
    sequence: str | None = None
    number: int | None = None  # among the sparse slots of a batch; None: its values are not there
    is_dense: bool = False


class Evidence:
    """Samples with their inputs, labels and weights."""

    def __init__(self, parts: list[SlotInput], inputs: Inputs, batch: Batch, label: int, at_once: int) -> None:
        self.parts = parts
        self.inputs = inputs
        self.batch = batch
        self.label = label
        self.labels = np.ascontiguousarray(batch.labels[:, label])
        self.weights = batch.weights
        self.at_once = at_once  # samples computed at once
        # [width] of a sample without values and with mean dense floats
        self.baseline = torch.zeros(inputs.flat.shape[1])
        first = inputs.spec.pooled_width
        self.baseline[first:] = inputs.flat[:, first:].mean(dim=0)

    def __len__(self) -> int:
        return len(self.batch)

    def values(self, part: SlotInput) -> NDArray[np.uint64] | None:
        """A number for each sample that differs where the slot's values differ; None if they are not known."""
        if part.is_dense:
            return _codes(self.inputs.flat[:, list(part.columns)].numpy())
        if part.number is None:
            return None
        values, offsets = self.batch.slot(part.number)
        lengths = np.diff(offsets)
        width = int(lengths.max(initial=0))
        # A bag of several values is one value of its own; its length keeps [] and [0] apart.
        table = np.zeros((len(self), width + 1), np.uint64)
        table[:, 0] = lengths
        table[:, 1:][np.arange(width) < lengths[:, None]] = values
        return _codes(table)

    def exchange(self, part: SlotInput, order: NDArray[np.int64]) -> Inputs:
        """The inputs with each sample's part taken from the sample at `order`."""
        rows = torch.from_numpy(order)
        if part.sequence is None:
            flat = self.inputs.flat.clone()
            columns = list(part.columns)
            flat[:, columns] = self.inputs.flat[rows][:, columns]
            return Inputs(self.inputs.spec, flat, self.inputs.sequences)
        old = self.inputs.sequences[part.sequence]
        new = Sequence(old.values[rows], old.lengths[rows])
        return Inputs(self.inputs.spec, self.inputs.flat, {**self.inputs.sequences, part.sequence: new})

    def score(self, learner: Learner, inputs: Inputs) -> NDArray[np.float32]:
        """Logits of the chosen label."""
        logits = [
            learner.score(rows_of(inputs, start, start + self.at_once)) for start in range(0, len(self), self.at_once)
        ]
        all_logits = np.concatenate(logits)
        return np.ascontiguousarray(all_logits if all_logits.ndim == 1 else all_logits[:, self.label])


def collect(learner: Learner, dataset: Dataset, *, samples: int, label: int = 0, batch_size: int = 1024) -> Evidence:
    """The first `samples` samples of a data set. Raises DataError if it has none."""
    held: list[Inputs] = []
    batches: list[Batch] = []
    missing = samples
    items = read_ahead(dataset, learner.look_up, batch_size=min(batch_size, samples))
    try:
        for item in items:
            inputs = learner.sparse.pull(item, train=False)
            held.append(rows_of(inputs, 0, missing))
            batches.append(item.batch.slice(0, missing))
            missing -= len(batches[-1])
            if missing == 0:
                break
    finally:
        items.close()
    if not held:
        raise DataError("there are no samples to explain the model with; name other data")
    parts = find_parts(dataset.schema, learner.plan)
    return Evidence(parts, _concat(held), Batch.concat(batches), label, batch_size)


def find_parts(schema: Schema, plan: InputPlan) -> list[SlotInput]:
    """Every slot the model reads, sparse ones first."""
    spec = plan.spec
    dims = dict(zip(spec.slots, spec.dims, strict=True))
    names = [slot.name for slot in schema.sparse]
    parts = []
    for slot in plan.slots:
        name = slot.slot.name
        columns: list[int] = []
        for segment, first in slot.columns.items():
            columns += range(first, first + (1 if segment == "linear" else dims[name]))
        sequence = None if slot.sequence is None else slot.sequence.name
        parts.append(SlotInput(name, tuple(columns), sequence, names.index(name) if name in names else None))
    parts.sort(key=lambda part: part.number if part.number is not None else len(names))
    start = spec.pooled_width
    for dense in schema.slots:
        if isinstance(dense, DenseSlot):
            parts.append(SlotInput(dense.name, tuple(range(start, start + dense.dim)), is_dense=True))
            start += dense.dim
    return parts


def rows_of(inputs: Inputs, start: int, stop: int) -> Inputs:
    """The samples [start, stop), cut to those there are."""
    sequences = {n: Sequence(s.values[start:stop], s.lengths[start:stop]) for n, s in inputs.sequences.items()}
    return Inputs(inputs.spec, inputs.flat[start:stop], sequences)


def _concat(held: list[Inputs]) -> Inputs:
    spec: InputSpec = held[0].spec
    flat: Tensor = torch.cat([one.flat for one in held])
    sequences = {
        sequence.name: Sequence(
            torch.cat([one.sequences[sequence.name].values for one in held]),
            torch.cat([one.sequences[sequence.name].lengths for one in held]),
        )
        for sequence in spec.sequences
    }
    return Inputs(spec, flat, sequences)


def _codes(table: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Numbers from 0 on, equal where rows of the table are."""
    rows = np.ascontiguousarray(table)
    flat = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    return np.unique(flat, return_inverse=True)[1].reshape(-1).astype(np.uint64)
