"""Wide & Deep (Cheng et al., 2016): a linear model beside a tower over embeddings and dense floats.

As in PaddleRec, the wide part reads only the dense floats; `wide` changes that. Slots that the tower must not read,
such as crosses, have a linear weight and no embedding: those in `wide_only`, and those of width 0.
"""

from __future__ import annotations

from typing import Literal, cast

from pydantic import Field
from torch import Tensor

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.layers.first_order import FirstOrder
from elasticctr.models.layers.tower_step import TowerParts
from elasticctr.models.model import InputNeeds, Model, ModelSettings, TowerSettings


class WideDeepSettings(TowerSettings):
    wide: Literal["dense", "sparse", "both"] = Field(
        "dense", description="what the linear part reads: dense floats, one weight per feasign, or both"
    )
    wide_only: tuple[str, ...] = Field((), description="slots that only the linear part reads, regardless of `wide`")


class WideDeep(Model):
    name = "wide_deep"
    settings_class = WideDeepSettings
    is_tower = True

    def __init__(self, spec: InputSpec, settings: WideDeepSettings) -> None:
        super().__init__(spec, settings)
        if settings.wide == "dense" and spec.dense_dim == 0 and not spec.linear_slots:
            raise ConfigError("model 'wide_deep' with wide: dense needs a dense slot; without one set wide: sparse")
        if settings.wide == "sparse" and not spec.slots:
            raise ConfigError("model 'wide_deep' with wide: sparse needs a pooled sparse slot; set wide: dense")
        self.wide = FirstOrder(spec, dense=settings.wide != "sparse")
        self.deep = settings.tower(deep_width(spec), spec.labels)

    @classmethod
    def input_needs(cls, settings: ModelSettings) -> InputNeeds:
        chosen = cast(WideDeepSettings, settings)
        return InputNeeds(settings.dim, chosen.wide != "dense", chosen.wide_only)

    def tower_parts(self) -> TowerParts | None:
        is_own = type(self).forward is WideDeep.forward and not self.spec.sequences and self.spec.labels == 1
        return TowerParts(self.deep, self.wide) if is_own and not self.wide.sparse else None

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.wide(inputs) + self.deep(deep_features(inputs)))
