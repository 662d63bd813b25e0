"""MaskNet (Wang et al., 2021): blocks whose input is multiplied by a mask computed from the sample's features."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width, field_count, field_dim, field_embeddings
from elasticctr.models.layers.linear import xavier_linear
from elasticctr.models.layers.mask_block import MaskBlock
from elasticctr.models.layers.norms import FieldNorm
from elasticctr.models.model import Model, TowerSettings, Widths


class MaskNetSettings(TowerSettings):
    hidden: Widths = Field(
        (400, 400, 400), min_length=1, description="serial: widths of the blocks; parallel: of the tower above them"
    )
    structure: Literal["parallel", "serial"] = Field(
        "parallel", description="parallel: all blocks read the features; serial: each reads the one before"
    )
    blocks: int = Field(3, ge=1, le=64, description="for parallel: number of blocks")
    block_dim: int = Field(64, ge=1, le=65536, description="for parallel: width of a block")
    reduction: float = Field(2.0, gt=0, le=64, description="width of a mask's inner layer, relative to its block")
    embedding_norm: bool = Field(True, description="layer norm of each slot's embedding before the first block")
    layer_norm: bool = Field(True, description="layer norm in blocks")


class MaskNet(Model):
    name = "masknet"
    settings_class = MaskNetSettings

    def __init__(self, spec: InputSpec, settings: MaskNetSettings) -> None:
        super().__init__(spec, settings)
        width = deep_width(spec)
        is_normed = settings.embedding_norm and field_count(spec) > 0
        self.norm = FieldNorm(field_count(spec), field_dim(spec, self.name)) if is_normed else None
        self.is_serial = settings.structure == "serial"
        widths = settings.hidden if self.is_serial else (settings.block_dim,) * settings.blocks
        reads = (width, *widths[:-1]) if self.is_serial else (width,) * settings.blocks
        self.blocks = nn.ModuleList(
            MaskBlock(width, read, out, settings.reduction, settings.dropout, settings.layer_norm)
            for read, out in zip(reads, widths, strict=True)
        )
        self.head: nn.Module
        if self.is_serial:
            self.head = xavier_linear(widths[-1], spec.labels)
        else:
            self.head = settings.tower(sum(widths), spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        features = deep_features(inputs)
        x = features if self.norm is None else self._normed(inputs, self.norm)
        if not self.is_serial:
            return self.to_logits(self.head(torch.cat([block(features, x) for block in self.blocks], dim=1)))
        for block in self.blocks:
            x = block(features, x)
        return self.to_logits(self.head(x))

    def _normed(self, inputs: Inputs, norm: FieldNorm) -> Tensor:
        """The features in their own order, embeddings normalised."""
        embeddings = norm(field_embeddings(inputs))
        pooled = inputs.spec.embedding_width
        dense = inputs.dense.detach() if self.training else inputs.dense  # as in FirstOrder
        return torch.cat([embeddings[:, :pooled], dense, embeddings[:, pooled:]], dim=1)
