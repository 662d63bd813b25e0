"""DCN-V2 (Wang et al., 2021): dcn with a matrix in each cross layer: full, low-rank, or a mixture of low-rank ones."""

from __future__ import annotations

from typing import Literal, cast

from pydantic import Field, model_validator
from torch import nn

from elasticctr.models.dcn import DCN, DCNSettings
from elasticctr.models.layers.cross import Cross, MixtureCross


class DCNv2Settings(DCNSettings):
    structure: Literal["stacked", "parallel"] = Field(
        "stacked", description="stacked: the tower reads the crosses; parallel: both read the features"
    )
    rank: int = Field(0, ge=0, le=65536, description="rank of the cross matrices; 0: full matrices")
    experts: int = Field(
        1, ge=1, le=64, description="above 1: each cross layer is a gated mixture of this many matrices of that rank"
    )

    @model_validator(mode="after")
    def _check_rank(self) -> DCNv2Settings:
        if self.experts > 1 and self.rank == 0:
            raise ValueError("experts above 1 mix low-rank matrices: set rank too, for example to 32")
        return self


class DCNv2(DCN):
    name = "dcnv2"
    settings_class = DCNv2Settings

    @staticmethod
    def make_cross(width: int, settings: DCNSettings) -> nn.Module:
        chosen = cast(DCNv2Settings, settings)
        if chosen.experts > 1:
            return MixtureCross(width, chosen.cross_layers, chosen.rank, chosen.experts)
        return Cross(width, chosen.cross_layers, chosen.rank)
