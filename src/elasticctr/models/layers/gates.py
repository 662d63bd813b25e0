"""Gates that scale features before a stream or block reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticctr.errors import ConfigError
from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import mean_of
from elasticctr.models.layers.mlp import MLP


class ContextGate(nn.Module):
    """Inputs → [B, width] (or [1, width] without context) factors between 0 and 2: 2 sigmoid(mlp(context)).

    The context is the embeddings of the named slots; without any it is a learned vector (FinalMLP, Mao et al., AAAI
    2023).
    """

    def __init__(self, spec: InputSpec, context: Sequence[str], hidden: Sequence[int], width: int, model: str) -> None:
        super().__init__()
        widths = {slot: dim for slot, dim in zip(spec.slots, spec.dims, strict=True) if dim > 0}
        widths |= {s.name: s.dim for s in spec.sequences}
        for name in context:
            if name not in widths:
                raise ConfigError(
                    f"model {model!r}: context slot {name!r} is not a sparse slot with an embedding; "
                    f"known: {', '.join(widths) or 'none'}"
                )
        starts = {name: sum(spec.dims[:i]) for i, name in enumerate(spec.slots)}
        self.columns = {name: (starts[name], starts[name] + widths[name]) for name in context if name in starts}
        self.context = tuple(context)
        self.free = None if context else nn.Parameter(torch.zeros(1, max(widths.values(), default=1)))
        inner = sum(widths[name] for name in context) if self.free is None else self.free.shape[1]
        self.mlp = MLP(inner, hidden, width)

    def forward(self, inputs: Inputs) -> Tensor:
        return 2.0 * torch.sigmoid(self.mlp(self._read(inputs)))

    def _read(self, inputs: Inputs) -> Tensor:
        if self.free is not None:
            return self.free
        embeddings = inputs.embeddings
        parts = []
        for name in self.context:
            if name in self.columns:
                begin, end = self.columns[name]
                parts.append(embeddings[:, begin:end])
            else:
                parts.append(mean_of(inputs.sequences[name]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class FieldGate(nn.Module):
    """[B, fields, K] → [B, fields, K] factors: a linear mix of all fields in each column, initially 1 everywhere
    (FINAL, Zhu et al., SIGIR 2023).
    """

    def __init__(self, fields: int) -> None:
        super().__init__()
        self.mix = nn.Linear(fields, fields)
        nn.init.zeros_(self.mix.weight)
        nn.init.ones_(self.mix.bias)

    def forward(self, fields: Tensor) -> Tensor:
        mixed: Tensor = self.mix(fields.transpose(1, 2))
        return mixed.transpose(1, 2)


class Regulation(nn.Module):
    """[B, width] → ([B, width], [B, width]): each field scaled by its share of a softmax, once for each of two streams
    (EDCN, Chen et al., CIKM 2021). `widths` are those of the fields; a high temperature makes the shares more equal.
    """

    field_of: Tensor

    def __init__(self, widths: Sequence[int], temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        owners = torch.repeat_interleave(torch.arange(len(widths)), torch.tensor(widths))
        self.register_buffer("field_of", owners, persistent=False)
        self.scores = nn.Parameter(torch.ones(2, len(widths)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = torch.softmax(self.scores / self.temperature, dim=1)[:, self.field_of].to(x.dtype)
        return x * shares[0], x * shares[1]
