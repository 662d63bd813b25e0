"""The zoo's models from FuxiCTR's layers, put together from the papers and the settings of our jobs: its package ships
layers and a training loop, and no interaction models.
"""

from __future__ import annotations

from typing import Any

import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import (
    BilinearInteraction,
    CompressedInteractionNet,
    CrossNet,
    CrossNetV2,
    FactorizationMachine,
    FeatureEmbedding,
    LogisticRegression,
    MLP_Block,
    ScaledDotProductAttention,
    SqueezeExcitation,
)
from fuxictr.pytorch.models import BaseModel
from torch import Tensor, nn

Columns = dict[str, Tensor]


class ZooModel(BaseModel):
    """Subclasses define how embeddings become logits."""

    def __init__(
        self, features: FeatureMap, settings: dict[str, Any], l2: float, patience: int, folder: str, gpu: int
    ) -> None:
        super().__init__(
            features,
            gpu=gpu,
            verbose=0,
            model_root=folder,
            metrics=["AUC"],
            early_stop_patience=patience,
            embedding_regularizer=l2,
        )
        self.fields, self.dim = features.num_fields, int(settings.get("dim", 1))
        self.width = self.fields * self.dim
        self.embedding = FeatureEmbedding(features, self.dim) if "dim" in settings else None
        self.make(settings)

    def make(self, settings: dict[str, Any]) -> None:
        raise NotImplementedError

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        """`fields` is [B, slots, dim]."""
        raise NotImplementedError

    def forward(self, inputs: Columns) -> Columns:
        columns = self.get_inputs(inputs)
        fields = torch.empty(0) if self.embedding is None else self.embedding(columns)
        return {"y_pred": self.output_activation(self.logits(columns, fields))}

    def tower(self, settings: dict[str, Any], width: int, out: int | None = 1) -> nn.Module:
        tower: nn.Module = MLP_Block(
            width,
            hidden_units=list(settings["hidden"]),
            output_dim=out,
            dropout_rates=settings.get("dropout", 0.0),
            batch_norm=settings.get("batch_norm", False),
        )
        return tower


class Lr(ZooModel):
    def make(self, settings: dict[str, Any]) -> None:
        self.linear = LogisticRegression(self.feature_map)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return self.linear(columns)


class Fm(ZooModel):
    def make(self, settings: dict[str, Any]) -> None:
        self.fm = FactorizationMachine(self.feature_map)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return self.fm(columns, fields)


class Dnn(ZooModel):
    def make(self, settings: dict[str, Any]) -> None:
        self.deep = self.tower(settings, self.width)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return self.deep(fields.flatten(1))


class WideDeep(Dnn):
    def make(self, settings: dict[str, Any]) -> None:
        super().make(settings)
        self.linear = LogisticRegression(self.feature_map)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return super().logits(columns, fields) + self.linear(columns)


class DeepFm(Dnn):
    def make(self, settings: dict[str, Any]) -> None:
        super().make(settings)
        self.fm = FactorizationMachine(self.feature_map)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return super().logits(columns, fields) + self.fm(columns, fields)


class XDeepFm(WideDeep):
    def make(self, settings: dict[str, Any]) -> None:
        super().make(settings)
        self.cin = CompressedInteractionNet(self.fields, list(settings["cin"]))

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return super().logits(columns, fields) + self.cin(fields)


class Dcn(ZooModel):
    """Crosses beside the tower, or under it if the job's structure is stacked."""

    cross_class: type[nn.Module] = CrossNet

    def make(self, settings: dict[str, Any]) -> None:
        self.cross = self.cross_class(self.width, settings["cross_layers"])
        self.is_stacked = settings["structure"] == "stacked"
        self.deep = self.tower(settings, self.width, 1 if self.is_stacked else None)
        self.head = nn.Linear(self.width + settings["hidden"][-1], 1)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        flat = fields.flatten(1)
        if self.is_stacked:
            return self.deep(self.cross(flat))
        return self.head(torch.cat([self.cross(flat), self.deep(flat)], dim=1))


class DcnV2(Dcn):
    cross_class = CrossNetV2


class Attention(nn.Module):
    """relu(attention + W x) of all fields."""

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.query, self.key, self.value, self.residual = (
            nn.Linear(width, heads * head_dim, bias=False) for _ in range(4)
        )
        self.attend = ScaledDotProductAttention()

    def forward(self, x: Tensor) -> Tensor:
        parts = (layer(x).unflatten(2, (self.heads, self.head_dim)) for layer in (self.query, self.key, self.value))
        read, _ = self.attend(*(part.transpose(1, 2) for part in parts))
        return torch.relu(read.transpose(1, 2).flatten(2) + self.residual(x))


class AutoInt(Dnn):
    def make(self, settings: dict[str, Any]) -> None:
        super().make(settings)
        heads, head_dim = settings["heads"], settings["head_dim"]
        widths = [self.dim] + [heads * head_dim] * settings["attention_layers"]
        self.attention = nn.Sequential(*(Attention(width, heads, head_dim) for width in widths[:-1]))
        self.head = nn.Linear(self.fields * widths[-1], 1)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        return super().logits(columns, fields) + self.head(self.attention(fields).flatten(1))


class FiBiNet(ZooModel):
    def make(self, settings: dict[str, Any]) -> None:
        kind = "field_" + settings.get("bilinear", "interaction")
        self.linear = LogisticRegression(self.feature_map)
        self.squeeze = SqueezeExcitation(self.fields, settings.get("reduction", 3))
        self.plain_pairs = BilinearInteraction(self.fields, self.dim, kind)
        self.scaled_pairs = BilinearInteraction(self.fields, self.dim, kind)
        self.deep = self.tower(settings, self.fields * (self.fields - 1) * self.dim)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        pairs = torch.cat([self.plain_pairs(fields), self.scaled_pairs(self.squeeze(fields))], dim=1)
        return self.linear(columns) + self.deep(pairs.flatten(1))


class MaskBlock(nn.Module):
    def __init__(self, width: int, out: int, reduction: float, dropout: float) -> None:
        super().__init__()
        self.mask = MLP_Block(width, hidden_units=[int(width * reduction)], output_dim=width)
        self.hidden = nn.Sequential(
            nn.Linear(width, out, bias=False), nn.LayerNorm(out), nn.ReLU(), nn.Dropout(dropout)
        )

    def forward(self, flat: Tensor) -> Tensor:
        return self.hidden(self.mask(flat) * flat)


class MaskNet(ZooModel):
    """The parallel one, without normalised embeddings."""

    def make(self, settings: dict[str, Any]) -> None:
        if settings["structure"] != "parallel" or settings["embedding_norm"]:
            raise SystemExit("only masknet with structure: parallel and embedding_norm: false is built here")
        count, out = settings["blocks"], settings["block_dim"]
        reduction, dropout = settings.get("reduction", 2.0), settings.get("dropout", 0.0)
        self.blocks = nn.ModuleList(MaskBlock(self.width, out, reduction, dropout) for _ in range(count))
        self.deep = self.tower(settings, count * out)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        flat = fields.flatten(1)
        return self.deep(torch.cat([block(flat) for block in self.blocks], dim=1))


class FinalMlp(ZooModel):
    """The gates read embeddings of their own, as the authors' do."""

    def make(self, settings: dict[str, Any]) -> None:
        self.contexts, self.gates, self.streams = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.heads = settings["num_heads"]
        lasts = []
        for k in (1, 2):
            context = list(settings[f"fs{k}_context"])
            self.contexts.append(FeatureEmbedding(self.feature_map, self.dim, required_feature_columns=context))
            gate = MLP_Block(
                len(context) * self.dim,
                hidden_units=list(settings["fs_hidden"]),
                output_dim=self.width,
                output_activation="Sigmoid",
            )
            self.gates.append(gate)
            stream = MLP_Block(
                self.width,
                hidden_units=list(settings[f"mlp{k}_hidden"]),
                dropout_rates=settings[f"mlp{k}_dropout"],
                batch_norm=settings[f"mlp{k}_batch_norm"],
            )
            self.streams.append(stream)
            lasts.append(settings[f"mlp{k}_hidden"][-1])
        self.first, self.second = nn.Linear(lasts[0], 1), nn.Linear(lasts[1], 1)
        self.joint = nn.Parameter(torch.empty(self.heads, lasts[0] // self.heads, lasts[1] // self.heads))
        nn.init.xavier_normal_(self.joint)

    def logits(self, columns: Columns, fields: Tensor) -> Tensor:
        flat = fields.flatten(1)
        x, y = (
            stream(flat * 2.0 * gate(context(columns, flatten_emb=True)))
            for context, gate, stream in zip(self.contexts, self.gates, self.streams, strict=True)
        )
        lefts, rights = x.unflatten(1, (self.heads, -1)), y.unflatten(1, (self.heads, -1))
        met = (torch.einsum("bhi,hij->bhj", lefts, self.joint) * rights).sum(dim=(1, 2))
        return self.first(x) + self.second(y) + met.unsqueeze(1)


MODELS: dict[str, type[ZooModel]] = {
    "autoint": AutoInt,
    "dcn": Dcn,
    "dcnv2": DcnV2,
    "deepfm": DeepFm,
    "dnn": Dnn,
    "fibinet": FiBiNet,
    "finalmlp": FinalMlp,
    "fm": Fm,
    "lr": Lr,
    "masknet": MaskNet,
    "wide_deep": WideDeep,
    "xdeepfm": XDeepFm,
}
