"""FinalNet (Zhu et al., 2023): one or two blocks of factorised interaction layers in place of a tower."""

from __future__ import annotations

from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.auxiliary import distillation
from elasticctr.models.layers.factorized import FactorizedBlock, Residual
from elasticctr.models.layers.features import deep_features, deep_width, field_count, field_dim, field_embeddings
from elasticctr.models.layers.gates import FieldGate
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.model import Activation, Model, ModelSettings, Widths

BlockActivation = Literal["none"] | Activation


class FinalNetSettings(ModelSettings):
    block_type: Literal["1B", "2B"] = Field("2B", description="1B: one block; 2B: the mean of two blocks' logits")
    block1_hidden: Widths = Field((400, 400), min_length=1, description="widths of the first block's layers")
    block1_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of its values set to zero while training")
    block1_activation: BlockActivation = Field("none", description="activation of its layers")
    block2_hidden: Widths = Field((400,), min_length=1, description="widths of the second block's layers")
    block2_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of its values set to zero while training")
    block2_activation: BlockActivation = Field("none", description="activation of its layers")
    batch_norm: bool = Field(False, description="normalise the layers of both blocks over the batch")
    feature_gating: bool = Field(False, description="the first block also reads the slots scaled by a mix of all slots")
    distillation: float = Field(
        1.0, ge=0.0, le=100.0, description="2B: weight of the loss by which each block learns from their mean; 0: none"
    )
    residual: Residual = Field("concat", description="a layer's halves a, b become [a, a * b] or a + a * b")


class FinalNet(Model):
    name = "finalnet"
    settings_class = FinalNetSettings

    def __init__(self, spec: InputSpec, settings: FinalNetSettings) -> None:
        super().__init__(spec, settings)
        s, width = settings, deep_width(spec)
        self.gate: FieldGate | None = None
        if s.feature_gating:
            self.dim, self.fields = field_dim(spec, self.name), field_count(spec)
            self.gate = FieldGate(self.fields)
        gated = 0 if self.gate is None else self.fields * self.dim
        self.block1 = FactorizedBlock(
            width + gated, s.block1_hidden, s.residual, s.block1_dropout, s.batch_norm, s.block1_activation
        )
        self.head1 = xavier_linear(s.block1_hidden[-1], spec.labels)
        self.has_two = s.block_type == "2B"
        if self.has_two:
            self.block2 = FactorizedBlock(
                width, s.block2_hidden, s.residual, s.block2_dropout, s.batch_norm, s.block2_activation
            )
            self.head2 = xavier_linear(s.block2_hidden[-1], spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(_mean(self._of_blocks(inputs)))

    def training_forward(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        blocks = self._of_blocks(inputs)
        logits, weight = _mean(blocks), cast(FinalNetSettings, self.settings).distillation
        losses = weight * distillation(blocks, logits) if weight > 0 and self.has_two else None
        return self.to_logits(logits), None if losses is None else self.to_logits(losses)

    def _of_blocks(self, inputs: Inputs) -> list[Tensor]:
        """Logits [B, labels] of each block."""
        features = deep_features(inputs)
        first = features
        if self.gate is not None:
            fields = field_embeddings(inputs).reshape(-1, self.fields, self.dim)
            first = torch.cat([features, (fields * self.gate(fields)).flatten(1)], dim=1)
        logits = [self.head1(self.block1(first))]
        return [*logits, self.head2(self.block2(features))] if self.has_two else logits


def _mean(logits: list[Tensor]) -> Tensor:
    return 0.5 * (logits[0] + logits[1]) if len(logits) == 2 else logits[0]
