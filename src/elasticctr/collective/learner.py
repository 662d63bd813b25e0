"""A learner whose tables are spread over the ranks and whose dense parameters every rank holds.

A step equals a step of one process on all ranks' batches together: losses are means over samples, so gradients are
averaged over ranks with the samples of each as weights. Dense gradients are added up in one flat vector, as
torch.nn.parallel.DistributedDataParallel does in buckets. Its wrapper does not fit: it sees
gradients through autograd, and native towers (models/layers/tower_step.py) write them without it; nor does it know
weights, or ranks without work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticctr.collective.group import Group
from elasticctr.collective.tables import ShardedTables, Summed
from elasticctr.models.model import Model
from elasticctr.table.buckets import bucket_range
from elasticctr.table.remote import pool_rows, sum_gradients
from elasticctr.train.checkpoint import Checkpoint, part_name
from elasticctr.train.input_plan import require_gradients
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.reading import PreparedBatch
from elasticctr.train.sparse import today
from elasticctr.train.vocabulary import find_vocabulary

_LARGEST_GRADIENT = 1e18


@dataclass(frozen=True, slots=True)
class StepNews:
    """The outcome of a step, the same on every rank."""

    samples: int  # learned from
    refused: int  # samples whose gradients were not finite, or too large for an optimizer's state
    batches: int  # of both
    loss_sum: float
    notes: NDArray[np.int64]  # [ranks]


class CollectiveLearner:
    def __init__(self, job: Job, group: Group, model_class: type[Model] | None = None) -> None:
        self.local = Learner(job, model_class)
        self.plan = self.local.plan
        if (vocabulary := find_vocabulary(job, resume=True)) is not None:
            self.plan.use(vocabulary)
        self._group = group
        self._tables = ShardedTables(group, self.local.sparse.tables, [bool(t.sequences) for t in self.plan.tables])
        self._parameters = self.local.parameters
        self._floats = self.local.dense_floats
        # Gradients; then the samples and the sum of losses they stand for; then, by rank, whether it is left out.
        self._shared = torch.zeros(self._floats + 2 + group.size)
        self.seed(job.train.seed)
        self.agree()

    def seed(self, number: int) -> None:
        """Dropout must not hit the same units on every rank."""
        torch.manual_seed(number + self._group.rank)

    def agree(self) -> None:
        """Rank 0's parameters and buffers on every rank: at the start, and of running means before they are used."""
        for tensor in (*self._parameters, *self.local.model.buffers()):
            if tensor.is_floating_point():
                self._group.broadcast_floats(tensor.data)

    def step(self, item: PreparedBatch | None, note: int, lr_scale: float) -> StepNews:
        """One step of all ranks. `item` is None on a rank without work; `note` reaches every rank."""
        own = 0 if item is None else len(item.batch)
        rows, heads = self._tables.pull(None if item is None else item.lookups, (own, note), insert=True)
        shared = self._shared.zero_()
        summed = None if item is None else self._compute(item, rows)
        self._group.sum(shared)
        samples, loss_sum = (float(value) for value in shared[self._floats : self._floats + 2])
        left_out = [bool(flag) for flag in shared[self._floats + 2 :]]
        if samples > 0:
            self._step_dense(samples, lr_scale)
            self._tables.push(summed, left_out, scale=1.0 / samples, now=today(), rate_scale=lr_scale)
        self.local.clear_gradients()
        given = int(heads[:, 0].sum())
        return StepNews(int(samples), given - int(samples), int(np.count_nonzero(heads[:, 0])), loss_sum, heads[:, 1])

    def _compute(self, item: PreparedBatch, rows: Sequence[NDArray[np.float32]]) -> list[Summed]:
        """Gradients of our batch: dense ones into the shared vector, those of rows as an answer."""
        inputs, arrays = self.plan.make_inputs(item)
        batch, n = item.batch, len(item.batch)
        for table, lookup, values, targets in zip(self.plan.tables, item.lookups, rows, arrays, strict=True):
            pool_rows(lookup, table.layout, values, targets)
        require_gradients(inputs)
        loss, logits = self.local.compute(inputs, batch)
        self.local.observe(logits, batch)
        summed, is_usable = [], bool(np.isfinite(loss))
        for table, lookup, gradients in zip(self.plan.tables, item.lookups, self.plan.gradients(inputs), strict=True):
            found = sum_gradients(lookup, table.layout, gradients, batch.labels[:, 0], batch.shows)
            is_usable = is_usable and found.is_finite and _is_usable(torch.from_numpy(found.gradients))
            summed.append(Summed(found.gradients * np.float32(n), found.shows, found.clicks, found.masks))
        flat = self._shared[: self._floats]
        self.local.flat_gradient(flat)
        if is_usable and _is_usable(flat):
            flat *= n
            self._shared[self._floats] = n
            self._shared[self._floats + 1] = loss * n
        else:
            self._shared.zero_()
            self._shared[self._floats + 2 + self._group.rank] = 1
        return summed

    def _step_dense(self, samples: float, lr_scale: float) -> None:
        mean = self._shared[: self._floats].div_(samples)
        parts = torch.split(mean, [p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        self.local.apply_dense(lr_scale)

    def predict(self, item: PreparedBatch | None, note: int) -> tuple[NDArray[np.float32] | None, NDArray[np.int64]]:
        """Logits of our batch, None without one, and everyone's note. Changes nothing."""
        rows, heads = self._tables.pull(None if item is None else item.lookups, (note,), insert=False)
        if item is None:
            return None, heads[:, 0]
        inputs, arrays = self.plan.make_inputs(item)
        for table, lookup, values, targets in zip(self.plan.tables, item.lookups, rows, arrays, strict=True):
            pool_rows(lookup, table.layout, values, targets)
        return self.local.score(inputs), heads[:, 0]

    def save_part(self, directory: Path) -> None:
        """This rank's rows."""
        for table in self.local.sparse.tables:
            table.save(directory / part_name(table.settings.name, self._group.rank))

    def save_dense(self, directory: Path) -> None:
        self.local.save_dense(directory)

    def load(self, checkpoint: Checkpoint) -> None:
        """Loads what this rank owns from all parts of a checkpoint, of any number of ranks or pservers.

        Calls no other rank, because only its owner may find a part damaged. Call `agree` afterwards.
        """
        self.local.check_identity(checkpoint)
        self.local.load_dense(checkpoint)
        first, last = bucket_range(self._group.rank, self._group.size)
        for table in self.local.sparse.tables:
            table.reset()
            for path in checkpoint.table_parts(table.settings.name):
                table.load_part(path, first, last)
        self.local.clear_metrics()
        if self._group.is_first:
            self.local.metrics.restore((checkpoint.path / "metrics.bin").read_bytes())

    def merged_metrics(self) -> LabelMetrics:
        """The training metrics of all ranks together."""
        return merge_metrics(self._group, self.local.metrics)


def _is_usable(gradients: Tensor) -> bool:
    """Whether optimizers can keep the squares: an infinite one would freeze a weight forever. NaN is not usable."""
    return gradients.numel() == 0 or bool(gradients.abs().max() < _LARGEST_GRADIENT)


def merge_metrics(group: Group, metrics: LabelMetrics) -> LabelMetrics:
    first, *others = group.gather_bytes(metrics.state())
    merged = LabelMetrics.from_state(first)
    for state in others:
        merged.merge(LabelMetrics.from_state(state))
    return merged
