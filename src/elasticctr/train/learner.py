"""A model, its tables and its optimizers: everything that learns, and one step of it.

trainer.py and loop.py are around it (files, epochs, evaluation, checkpoints). A learner sees prepared batches only.
"""

from __future__ import annotations

import copy
import pickle
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.errors import ConfigError, Corruption, FailedPrecondition
from elasticctr.models import registry
from elasticctr.models.dense import load_dense
from elasticctr.models.initialize import seeded
from elasticctr.models.inputs import Inputs
from elasticctr.models.layers import set_tower_precision
from elasticctr.models.layers.tower_step import TowerStep
from elasticctr.models.losses import Loss
from elasticctr.models.model import Model
from elasticctr.table import Lookup
from elasticctr.train.checkpoint import Checkpoint
from elasticctr.train.dense_parts import OPTIMIZERS, DenseVector, read_dense_parts
from elasticctr.train.deterministic import set_deterministic
from elasticctr.train.input_plan import InputPlan, make_input_spec
from elasticctr.train.job import Job, TrainSettings
from elasticctr.train.metrics.label_metrics import LabelMetrics
from elasticctr.train.metrics.metrics import group_ids
from elasticctr.train.optimizers import make_optimizer
from elasticctr.train.reading import PreparedBatch
from elasticctr.train.sparse import SparseInputs


class Learner:
    def __init__(self, job: Job, model_class: type[Model] | None = None, *, device: str = "cpu") -> None:
        """`device`: where the dense part computes. Tables are in this machine's memory wherever that is."""
        settings = job.train
        self._device = _find_device(device)
        cls = model_class or registry.resolve(job.model.name)
        _set_threads(cls, settings)
        set_deterministic(settings.deterministic)
        options = registry.parse(cls, job.model.options, "model")
        spec = make_input_spec(job.samples, registry.input_needs(cls, options))
        self.model = registry.create(cls, spec, options, seed=settings.seed).to(self._device)
        self.plan = InputPlan(job.samples, spec, job.sparse, seed=settings.seed)
        self.sparse = SparseInputs(self.plan, is_deterministic=settings.deterministic)
        self.metrics = LabelMetrics(job.samples.label)
        self.identity = {
            "schema": job.samples.fingerprint(),
            "model": cls.name,
            "options": options.model_dump(mode="json"),
        }
        self._precision = settings.precision
        set_tower_precision(settings.precision)
        forward = self.model.training_forward
        self._forward = torch.compile(forward) if settings.compile else forward
        with seeded(settings.seed):
            self._loss = Loss(job.loss, job.samples.label, spec).to(self._device)
        slots = [slot.name for slot in job.samples.sparse]
        self._group = slots.index(job.loss.group) if job.loss.group is not None and self._loss.ranks else None
        self.parameters = [*self.model.parameters(), *self._loss.parameters()]
        self._tower = _make_tower_step(self.model, self._loss, job) if self._device.type == "cpu" else None
        self._flat_gradient: Tensor | None = None  # of `lay_out_flat`, and its parts
        self._flat_parts: tuple[Tensor, ...] = ()
        self._optimizer = make_optimizer(self.parameters, job.dense)
        self._dense_settings = job.dense
        self._clip_norm = job.dense.clip_norm
        self._learning_rate = job.dense.learning_rate
        self._lr_scale = 1.0
        torch.manual_seed(settings.seed)

    def look_up(self, batch: Batch) -> tuple[Lookup, ...]:
        return self.sparse.look_up(batch)

    def step(self, item: PreparedBatch, lr_scale: float = 1.0) -> float:
        """Learns from one batch and returns its loss. The batch is scored for `metrics` before it is learned from."""
        inputs = self.sparse.pull(item, train=True)
        loss, logits = self.compute(inputs, item.batch)
        self.apply_dense(lr_scale)
        self.sparse.push(item, inputs, lr_scale)
        self.observe(logits, item.batch)
        return loss

    def compute(self, inputs: Inputs, batch: Batch) -> tuple[float, Tensor]:
        """Loss and logits of a batch. Its gradients are left on the parameters and on the inputs, until the next call
        at the longest.
        """
        if not self.model.training:
            self.model.train()
        labels = torch.from_numpy(batch.labels[:, 0] if batch.labels.shape[1] == 1 else batch.labels)
        weights = torch.from_numpy(batch.weights)
        if self._tower is not None and self._tower.can_run(inputs):
            return self._tower.run(inputs, labels, weights)
        groups = None if self._group is None else _number_groups(batch, self._group)
        if self._device.type != "cpu":
            # Gradients find the way back to the inputs they are copies of.
            inputs, labels, weights = inputs.to(self._device), labels.to(self._device), weights.to(self._device)
            groups = None if groups is None else groups.to(self._device)
        with self._computing():
            logits, auxiliary = self._forward(inputs)
        logits = logits.float()
        loss = self._loss.backward(logits, labels, weights, inputs, groups, auxiliary)
        return loss, logits.detach().cpu()

    def apply_dense(self, lr_scale: float = 1.0) -> None:
        """Steps the dense parameters by the gradients left on them."""
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self._clip_norm)
        if lr_scale != self._lr_scale:
            self._set_lr_scale(lr_scale)
        self._optimizer.step()
        self.clear_gradients()

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def observe(self, logits: Tensor, batch: Batch) -> None:
        """Takes the scores a batch had before it was learned from into `metrics`."""
        weights, rate = batch.weights, self._loss.settings.negative_rate
        if rate < 1:
            # Metrics are of the log as it was before its negatives were thinned out, as scores are.
            weights = np.where(batch.labels[:, 0] > 0.5, weights, weights / np.float32(rate))
        self.metrics.update(logits.numpy(), batch.labels, weights)

    def clear_metrics(self) -> None:
        """Starts new `metrics`. The old object stays unchanged for those that hold it."""
        self.metrics = LabelMetrics(self.metrics.labels)

    @property
    def dense_floats(self) -> int:
        return sum(p.numel() for p in self.parameters)

    @torch.no_grad()
    def lay_out_flat(self) -> tuple[Tensor, Tensor]:
        """Moves all parameters into one vector, in the order of `flat_dense`, and returns it with one for gradients:
        writing to the first changes the model, and `flat_gradient` of the second copies next to nothing.

        REQUIRES: no step was taken yet.
        """
        values, gradient = self.flat_dense(), torch.empty(self.dense_floats)
        places: dict[Tensor, Tensor] = {}
        self._flat_gradient, self._flat_parts = gradient, self._split(gradient)
        for parameter, part, place in zip(self.parameters, self._split(values), self._flat_parts, strict=True):
            parameter.data = part.view_as(parameter)
            places[parameter] = place.view_as(parameter)
        if self._tower is not None:
            self._tower.keep_gradients(places)
        return values, gradient

    def flat_dense(self) -> Tensor:
        """A copy of all parameters, one after the other the model's, then the loss's."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters]) if self.parameters else torch.empty(0)

    @torch.no_grad()
    def set_flat_dense(self, vector: Tensor) -> None:
        """Copies a vector in the order of `flat_dense` into the parameters. REQUIRES: `dense_floats` values."""
        for parameter, part in zip(self.parameters, self._split(vector), strict=True):
            parameter.copy_(part.view_as(parameter))

    def flat_gradient(self, out: Tensor | None = None) -> Tensor:
        """The gradients that `compute` left, in the order of `flat_dense`; zeros for a parameter without one."""
        gradient = torch.empty(self.dense_floats) if out is None else out
        parts = self._flat_parts if gradient is self._flat_gradient else self._split(gradient)
        for parameter, part in zip(self.parameters, parts, strict=True):
            if parameter.grad is None:
                part.zero_()
            elif parameter.grad.data_ptr() != part.data_ptr():  # not written there already
                part.copy_(parameter.grad.reshape(-1))
        return gradient

    def _split(self, vector: Tensor) -> tuple[Tensor, ...]:
        return torch.split(vector, [p.numel() for p in self.parameters])

    def _computing(self) -> AbstractContextManager[object]:
        # A native tower takes its precision from its own switch; autocast would only add casts around it.
        if self._precision == "fp32" or (self.model.is_tower and self._device.type == "cpu"):
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    def _set_lr_scale(self, scale: float) -> None:
        self._lr_scale = scale
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate * scale

    @torch.no_grad()
    def predict(self, item: PreparedBatch) -> NDArray[np.float32]:
        """Logits of a batch, [n] or [n, labels]. Changes nothing."""
        return self.score(self.sparse.pull(item, train=False))

    @torch.no_grad()
    def score(self, inputs: Inputs) -> NDArray[np.float32]:
        """Logits of inputs, [n] or [n, labels]. Changes nothing."""
        if self.model.training:
            self.model.eval()
        with self._computing():
            logits = self.model(inputs if self._device.type == "cpu" else inputs.to(self._device))
        scores: NDArray[np.float32] = logits.float().cpu().numpy()
        return scores

    def host_model(self) -> Model:
        """The model where exporters and servers are: itself, or a copy of what another device holds."""
        return self.model if self._device.type == "cpu" else copy.deepcopy(self.model).cpu()

    def save(self, directory: Path) -> None:
        """Everything learned, as files of a checkpoint."""
        self.save_dense(directory)
        (directory / "metrics.bin").write_bytes(self.metrics.state())
        self.sparse.save(directory)

    def save_dense(self, directory: Path) -> None:
        torch.save(
            {
                "model": self.model.state_dict(),
                "loss": self._loss.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "random": torch.get_rng_state(),
                **({} if self._device.type == "cpu" else {"device_random": torch.cuda.get_rng_state(self._device)}),
            },
            directory / "dense.pt",
        )

    def load(self, checkpoint: Checkpoint) -> None:
        """Restores a checkpoint. Refuses one of another schema or model."""
        self.check_identity(checkpoint)
        self.load_dense(checkpoint)
        self.metrics.restore((checkpoint.path / "metrics.bin").read_bytes())
        self.sparse.load(checkpoint)

    def load_dense(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.dense.exists():
            self._load_dense_vector(read_dense_parts(checkpoint.path, self.dense_floats), checkpoint.path)
            return
        try:
            dense = torch.load(checkpoint.dense, weights_only=True, map_location="cpu")
            load_dense(self.model, dense["model"], str(checkpoint.dense))
            load_dense(self._loss, dense.get("loss", {}), f"{checkpoint.dense} (of the loss)")
            self._optimizer.load_state_dict(dense["optimizer"])
            self._set_lr_scale(1.0)
            torch.set_rng_state(dense["random"])
            if self._device.type != "cpu" and "device_random" in dense:
                torch.cuda.set_rng_state(dense["device_random"], self._device)
        except (RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as e:
            raise Corruption(f"{checkpoint.dense}: cannot be read back: {e}") from e

    def _load_dense_vector(self, vector: DenseVector, path: Path) -> None:
        if vector.optimizer != self._dense_settings.optimizer:
            raise FailedPrecondition(
                f"{path}: its dense parameters were trained with {vector.optimizer}, this job has "
                f"{self._dense_settings.optimizer}; use the job it was trained with"
            )
        if not vector.has_values:
            return  # saved before the first trainer joined: the initial values
        self.set_flat_dense(torch.from_numpy(vector.values))
        first = 0
        for parameter in self.parameters:
            last = first + parameter.numel()
            state = {name: _slice(array, first, last, parameter) for name, array in vector.state.items()}
            if state:
                # A parameter that lies on two pservers has the steps of the one it begins on.
                state["step"] = torch.tensor(float(vector.steps[first]) if last > first else 0.0)
                self._optimizer.state[parameter] = state
            first = last
        self._set_lr_scale(1.0)

    def dense_vector(self) -> DenseVector:
        """The dense parameters and their optimizer's state, as pservers save them."""
        names = dict(OPTIMIZERS)[self._dense_settings.optimizer]
        states = [self._optimizer.state.get(parameter, {}) for parameter in self.parameters]
        pairs = list(zip(self.parameters, states, strict=True))
        arrays = {
            name: np.concatenate([_flat(s.get(name), p) for p, s in pairs] or [np.zeros(0, np.float32)])
            for name in names
        }
        steps = np.concatenate(
            [np.full(p.numel(), int(s.get("step", 0)), np.int64) for p, s in pairs] or [np.zeros(0, np.int64)]
        )
        values = self.flat_dense().detach().numpy().copy()
        return DenseVector(self._dense_settings.optimizer, values, arrays, steps, True)

    def check_identity(self, checkpoint: Checkpoint) -> None:
        found = checkpoint.trainer.get("identity", {})
        for what, own in self.identity.items():
            if found.get(what) != own:
                raise FailedPrecondition(
                    f"{checkpoint.path}: was trained with {what} {found.get(what)!r}, this job has {own!r}; "
                    "use the job it was trained with, or start a new run in another directory"
                )


def _slice(array: NDArray[np.float32], first: int, last: int, parameter: Tensor) -> Tensor:
    return torch.from_numpy(array[first:last].copy()).reshape(parameter.shape)


def _flat(tensor: Tensor | None, parameter: Tensor) -> NDArray[np.float32]:
    if tensor is None:  # not stepped yet
        return np.zeros(parameter.numel(), np.float32)
    flat: NDArray[np.float32] = tensor.detach().reshape(-1).numpy()
    return flat


def _find_device(name: str) -> torch.device:
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(
            f"train.device is {name}, and torch {torch.__version__} finds no GPU here; take a torch that is built for "
            "CUDA, on a machine whose driver works (nvidia-smi shows it), or leave train.device out"
        )
    return torch.device(name)


def _number_groups(batch: Batch, slot: int) -> Tensor:
    """Samples with the same first value of a slot have the same number, from 0 on."""
    numbers = np.unique(group_ids(*batch.slot(slot)), return_inverse=True)[1]
    return torch.from_numpy(numbers.astype(np.int64))


def _make_tower_step(model: Model, loss: Loss, job: Job) -> TowerStep | None:
    parts = model.tower_parts()
    is_plain = loss.is_plain and job.loss.embedding_l2 == 0 and not job.train.compile
    return TowerStep(parts) if parts is not None and is_plain else None


def _set_threads(cls: type[Model], settings: TrainSettings) -> None:
    _native.keep_freed_memory()
    if settings.threads is not None:
        _native.set_threads(settings.threads)
    # Beside a native tower, torch's work is too short for more threads. Its sums also depend on their number; those of
    # the native core do not.
    torch.set_num_threads(1 if cls.is_tower or settings.deterministic else _native.threads())
