"""FinalMLP (Mao et al., 2023): two towers read the features through separate gates; a bilinear product joins their
outputs.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.fusion import BilinearFusion
from elasticctr.models.layers.gates import ContextGate
from elasticctr.models.layers.mlp import MLP
from elasticctr.models.model import Activation, Model, ModelSettings, Widths


class FinalMLPSettings(ModelSettings):
    mlp1_hidden: Widths = Field((400, 400, 400), min_length=1, description="widths of the first stream's hidden layers")
    mlp1_dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="share of its hidden values set to zero during training"
    )
    mlp1_batch_norm: bool = Field(False, description="normalise its hidden layers over the batch")
    mlp1_activation: Activation = Field("relu", description="activation of its hidden layers")
    mlp2_hidden: Widths = Field((800,), min_length=1, description="widths of the second stream's hidden layers")
    mlp2_dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="share of its hidden values set to zero during training"
    )
    mlp2_batch_norm: bool = Field(False, description="normalise its hidden layers over the batch")
    mlp2_activation: Activation = Field("relu", description="activation of its hidden layers")
    feature_gates: bool = Field(True, description="scale the features of each stream by its own gate")
    fs_hidden: Widths = Field((400,), description="widths of the gates' hidden layers")
    fs1_context: tuple[str, ...] = Field(
        (), description="slots whose embeddings control the first gate; none: the gate is the same for all samples"
    )
    fs2_context: tuple[str, ...] = Field((), description="slots whose embeddings control the second gate")
    num_heads: int = Field(
        10, ge=1, le=4096, description="parts of the bilinear product; must divide the last width of both streams"
    )


class FinalMLP(Model):
    name = "finalmlp"
    settings_class = FinalMLPSettings

    def __init__(self, spec: InputSpec, settings: FinalMLPSettings) -> None:
        super().__init__(spec, settings)
        s, width = settings, deep_width(spec)
        self.gate1 = self.gate2 = None
        if s.feature_gates:
            self.gate1 = ContextGate(spec, s.fs1_context, s.fs_hidden, width, self.name)
            self.gate2 = ContextGate(spec, s.fs2_context, s.fs_hidden, width, self.name)
        self.mlp1 = MLP(width, s.mlp1_hidden, None, s.mlp1_dropout, s.mlp1_batch_norm, s.mlp1_activation)
        self.mlp2 = MLP(width, s.mlp2_hidden, None, s.mlp2_dropout, s.mlp2_batch_norm, s.mlp2_activation)
        self.fusion = BilinearFusion(s.mlp1_hidden[-1], s.mlp2_hidden[-1], spec.labels, s.num_heads)

    def forward(self, inputs: Inputs) -> Tensor:
        features = deep_features(inputs)
        first = features if self.gate1 is None else features * self.gate1(inputs)
        second = features if self.gate2 is None else features * self.gate2(inputs)
        return self.to_logits(self.fusion(self.mlp1(first), self.mlp2(second)))
