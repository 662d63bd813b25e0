"""BST (Chen et al., 2019): a transformer over a target and a history, each value with its distance from the target."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.behaviours import Behaviour, Behaviours, Pair
from elasticctr.models.layers.recency import Recency, distances
from elasticctr.models.layers.transformer import TransformerLayer
from elasticctr.models.model import Model
from elasticctr.models.sequence_settings import SequenceSettings


class BSTSettings(SequenceSettings):
    layers: int = Field(1, ge=1, le=16, description="transformer layers; the paper found one to be enough")
    heads: int = Field(2, ge=1, le=64, description="heads of each layer")
    head_dim: int = Field(16, ge=1, le=1024, description="width of a head")
    feed_forward: int = Field(64, ge=1, le=65536, description="width of the feed-forward part of a layer")
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="dropout inside the transformer during training")
    readout: Literal["mean", "target", "concat"] = Field(
        "mean", description="what the tower reads: the mean of the tokens, the target's token, or all concatenated"
    )


class Transformer(nn.Module):
    """A behaviour → [B, out_features]. The target is token 0; with an empty history it is the only token."""

    def __init__(self, pair: Pair, settings: BSTSettings) -> None:
        super().__init__()
        self.readout = settings.readout
        self.recency = Recency(pair.max_values, pair.dim)
        self.layers = nn.ModuleList(
            TransformerLayer(
                pair.dim, settings.heads, settings.head_dim, settings.feed_forward, settings.attention_dropout
            )
            for _ in range(settings.layers)
        )
        self.out_features = pair.dim * (pair.max_values + 1 if settings.readout == "concat" else 1)

    def forward(self, read: Behaviour) -> Tensor:
        places = F.pad(distances(read.lengths, read.keys.shape[1]), (1, 0))
        mask = F.pad(read.mask, (1, 0), value=True)
        x: Tensor = torch.cat([read.query.unsqueeze(1), read.keys], dim=1) + self.recency(places)
        for layer in self.layers:
            x = layer(x, mask)
        if self.readout == "target":
            return x[:, 0]
        x = x.masked_fill(~mask.unsqueeze(2), 0.0)
        if self.readout == "concat":
            return x.flatten(1)
        return x.sum(dim=1) / mask.sum(dim=1, keepdim=True).to(x.dtype)


class BST(Model):
    name = "bst"
    settings_class = BSTSettings

    def __init__(self, spec: InputSpec, settings: BSTSettings) -> None:
        super().__init__(spec, settings)
        self.behaviours = Behaviours(spec, [(a.sequence, a.target) for a in settings.attention], self.name)
        transformers = [Transformer(pair, settings) for pair in self.behaviours.pairs]
        self.transformers = nn.ModuleList(transformers)
        width = self.behaviours.width(spec) + sum(transformer.out_features for transformer in transformers)
        self.tower = settings.tower(width, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        parts = self.behaviours.others(inputs)
        for pair, transformer in zip(self.behaviours.pairs, self.transformers, strict=True):
            parts.append(transformer(pair.read(inputs)))
        return self.to_logits(self.tower(torch.cat(parts, dim=1)))
