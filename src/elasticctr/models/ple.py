"""PLE (Tang et al., 2020): experts for each label beside shared ones, in levels that read the level below."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.experts import ExpertGate, Experts, Heads
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.model import Model, Widths
from elasticctr.models.task_settings import TaskSettings


class PLESettings(TaskSettings):
    hidden: Widths = Field((256, 128), min_length=1, description="widths of the layers of each expert")
    levels: int = Field(2, ge=1, le=8, description="levels of experts; 1: CGC")
    shared_experts: int = Field(2, ge=1, le=64, description="experts of each level that all labels read")
    label_experts: int = Field(2, ge=1, le=64, description="experts of each level and label that only this label reads")


class Level(nn.Module):
    """A label's gate reads its own experts and the shared ones. Except in the last level, a further gate reads all of
    them, for the next level's shared experts.
    """

    def __init__(self, in_features: int, labels: int, settings: PLESettings, is_last: bool) -> None:
        super().__init__()
        own, shared = settings.label_experts, settings.shared_experts
        self.own = nn.ModuleList(Experts(own, lambda: settings.tower(in_features, None)) for _ in range(labels))
        self.shared = Experts(shared, lambda: settings.tower(in_features, None))
        self.gates = nn.ModuleList(ExpertGate(in_features, own + shared) for _ in range(labels))
        self.shared_gate = None if is_last else ExpertGate(in_features, labels * own + shared)

    def forward(self, each: list[Tensor], shared: Tensor) -> tuple[list[Tensor], Tensor]:
        """The inputs of the labels and the shared one, [B, in] each → the same, [B, width] each."""
        own = [experts(x) for experts, x in zip(self.own, each, strict=True)]
        common = self.shared(shared)
        mixed = [
            gate(x, torch.cat([experts, common], dim=1)) for gate, x, experts in zip(self.gates, each, own, strict=True)
        ]
        if self.shared_gate is None:
            return mixed, shared
        return mixed, self.shared_gate(shared, torch.cat([*own, common], dim=1))


class PLE(Model):
    name = "ple"
    settings_class = PLESettings
    is_tower = True

    def __init__(self, spec: InputSpec, settings: PLESettings) -> None:
        super().__init__(spec, settings)
        last = settings.levels - 1
        self.levels = nn.ModuleList(
            Level(settings.hidden[-1] if n else deep_width(spec), spec.labels, settings, n == last)
            for n in range(settings.levels)
        )
        self.heads = Heads(spec.labels, lambda: settings.head(settings.hidden[-1]))

    def forward(self, inputs: Inputs) -> Tensor:
        shared = deep_features(inputs)
        each = [shared] * self.spec.labels
        for level in self.levels:
            each, shared = level(each, shared)
        return self.to_logits(self.heads(each))
