"""Shared bottom (Caruana, 1997): one tower shared by all labels, and a small head for each."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.experts import Heads
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.model import Model, Widths
from elasticctr.models.task_settings import TaskSettings


class SharedBottomSettings(TaskSettings):
    hidden: Widths = Field((256, 128), min_length=1, description="widths of the layers that all labels share")


class SharedBottom(Model):
    name = "shared_bottom"
    settings_class = SharedBottomSettings
    is_tower = True

    def __init__(self, spec: InputSpec, settings: SharedBottomSettings) -> None:
        super().__init__(spec, settings)
        self.bottom = settings.tower(deep_width(spec), None)
        self.heads = Heads(spec.labels, lambda: settings.head(settings.hidden[-1]))

    def forward(self, inputs: Inputs) -> Tensor:
        shared = self.bottom(deep_features(inputs))
        return self.to_logits(self.heads([shared] * self.spec.labels))
