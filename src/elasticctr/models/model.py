"""The base of every model, ours or a user's.

A model is built from the shape of its inputs and its own settings, and turns a batch of inputs into logits. Its
`input_needs` tell the trainer what table rows must hold; otherwise it knows nothing of tables, files or training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.config import Settings
from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.layers.tower_step import TowerParts

Widths = tuple[Annotated[int, Field(ge=1, le=65536)], ...]
Activation = Literal["relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "dice"]


class ModelSettings(Settings):
    """Settings that every model has. A model with more settings derives its own class from this one."""

    dim: int = Field(9, ge=1, le=4096, description="embedding width of slots that have no 'dim' in the schema")


class TowerSettings(ModelSettings):
    """For models with a tower: a stack of fully connected layers."""

    hidden: Widths = Field((512, 256, 128, 32), description="widths of the hidden layers; the first reads the features")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of hidden values set to zero during training")
    batch_norm: bool = Field(False, description="normalise each hidden layer over the batch")
    activation: Activation = Field("relu", description="activation of hidden layers; relu is the fastest")

    def tower(self, in_features: int, out_features: int | None) -> MLP:
        return MLP(in_features, self.hidden, out_features, self.dropout, self.batch_norm, self.activation)


class InputNeeds(NamedTuple):
    """What a row of a slot holds for a model."""

    dim: int  # default embedding width; 0: no embeddings, even if the slots set a width
    linear: bool  # one linear weight in addition to the embedding, in every pooled slot
    # Pooled slots that get a linear weight and no embedding. None: the model reads no such slots unless `linear`.
    linear_only: tuple[str, ...] | None = None
    field_aware: bool = False  # a row holds one vector of the embedding width for each other field, side by side
    dense_fields: bool = False  # with field_aware: each dense float counts as a field too

    def vectors(self, sparse: int, dense: int) -> int:
        """How many vectors a row holds, given `sparse` slots with embeddings and `dense` dense floats."""
        if not self.field_aware:
            return 1
        return max(sparse + (dense if self.dense_fields else 0) - 1, 1)


class Model(nn.Module):
    """Derive from this, set `settings_class` (and `linear`), build layers in `__init__`, return logits in `forward`."""

    name: ClassVar[str]  # shown in messages; default: the name of the class
    settings_class: ClassVar[type[ModelSettings]] = ModelSettings
    linear: ClassVar[bool] = False  # whether pooled slots need a linear weight
    labels_needed: ClassVar[int] = 0  # 0: any number
    is_tower: ClassVar[bool] = False  # nearly all arithmetic is in an MLP, which has its own threads

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def __init__(self, spec: InputSpec, settings: ModelSettings) -> None:
        super().__init__()
        self.spec = spec
        self.settings = settings
        if self.labels_needed not in (0, spec.labels):
            raise ConfigError(
                f"model {self.name!r} needs {self.labels_needed} labels, but the schema has {spec.labels}; "
                "set schema.label, or choose another model"
            )
        needs = self.input_needs(settings)
        if spec.linear != needs.linear:
            raise ConfigError(
                f"model {self.name!r} {'needs' if needs.linear else 'does not use'} linear weights of slots, but the "
                f"input spec has linear={spec.linear}; make the spec from input_needs()"
            )
        if not needs.linear and needs.linear_only is None and 0 in spec.dims:
            raise ConfigError(
                f"model {self.name!r} needs embeddings, but slot {spec.slots[spec.dims.index(0)]!r} has width 0"
            )

    @classmethod
    def input_needs(cls, settings: ModelSettings) -> InputNeeds:
        return InputNeeds(settings.dim, cls.linear)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits: [B], or [B, labels] if the spec has several labels."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward(inputs)")

    def training_forward(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        """Called by a training step: the logits of `forward`, and auxiliary losses to minimise too, or None.

        Auxiliary losses are per sample, [B], or per sample and label, [B, labels], and are weighted like the samples
        and labels. The reported loss is that of the logits alone.
        """
        return self(inputs), None

    def tower_parts(self) -> TowerParts | None:
        """The model's tower and linear layer, if `forward` is only their sum: training is then faster."""
        return None

    def to_logits(self, x: Tensor) -> Tensor:
        """Brings [B, labels] into the shape that `forward` returns."""
        return x.squeeze(1) if self.spec.labels == 1 else x


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts the model in serving mode: no dropout, fixed batch norm, no gradients. Restores each module's mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
