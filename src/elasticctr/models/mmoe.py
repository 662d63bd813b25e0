"""MMoE (Ma et al., 2018): experts shared by all labels, mixed by a gate for each label."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.experts import ExpertGate, Experts, Heads
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.model import Model, Widths
from elasticctr.models.task_settings import TaskSettings


class MMoESettings(TaskSettings):
    hidden: Widths = Field((256, 128), min_length=1, description="widths of the layers of each expert")
    experts: int = Field(4, ge=1, le=256, description="towers that labels share")


class MMoE(Model):
    name = "mmoe"
    settings_class = MMoESettings
    is_tower = True

    def __init__(self, spec: InputSpec, settings: MMoESettings) -> None:
        super().__init__(spec, settings)
        width = deep_width(spec)
        self.experts = Experts(settings.experts, lambda: settings.tower(width, None))
        self.gates = nn.ModuleList(ExpertGate(width, settings.experts) for _ in range(spec.labels))
        self.heads = Heads(spec.labels, lambda: settings.head(settings.hidden[-1]))

    def forward(self, inputs: Inputs) -> Tensor:
        features = deep_features(inputs)
        experts = self.experts(features)
        return self.to_logits(self.heads([gate(features, experts) for gate in self.gates]))
