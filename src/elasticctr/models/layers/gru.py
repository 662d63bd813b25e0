"""A recurrent layer whose update gate may use attention (Zhou et al., DIEN, AAAI 2019).

Written as a loop over positions: the input's part of all gates is one product for the whole sequence, and the exported
graph is the loop unrolled.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from elasticctr.models.layers.linear import xavier_linear

Kind = Literal["gru", "agru", "augru"]


class GRU(nn.Module):
    """[B, T, in_features] → [B, T, width], the state after each position.

    h ← (1 - u) h + u c, with u = σ(W x + U h), r = σ(W x + U h), c = tanh(W x + r * U h). `augru` takes a * u for the
    update gate u and `agru` a itself, where a [B, T] is the attention of each position: at 0 the state does not change.
    """

    def __init__(self, in_features: int, width: int, kind: Kind = "gru") -> None:
        super().__init__()
        self.width, self.kind = width, kind
        gates = 2 if kind == "agru" else 3
        self.inputs = xavier_linear(in_features, gates * width)
        self.states = nn.Linear(width, gates * width, bias=False)
        for part in torch.split(self.states.weight.detach(), width):
            nn.init.orthogonal_(part)

    def forward(self, x: Tensor, attention: Tensor | None = None) -> Tensor:
        if (attention is None) != (self.kind == "gru"):
            raise ValueError(f"kind {self.kind} {'takes no' if self.kind == 'gru' else 'needs'} attention")
        state = x.new_zeros(x.shape[0], self.width)
        steps = self.inputs(x).unbind(1)
        shares = [None] * len(steps) if attention is None else list(attention.unsqueeze(2).unbind(1))
        states = []
        for step, share in zip(steps, shares, strict=True):
            state = self._step(step, state, share)
            states.append(state)
        return torch.stack(states, dim=1)

    def _step(self, step: Tensor, state: Tensor, share: Tensor | None) -> Tensor:
        of_input, of_state = torch.split(step, self.width, dim=1), torch.split(self.states(state), self.width, dim=1)
        reset = torch.sigmoid(of_input[0] + of_state[0])
        candidate = torch.tanh(of_input[1] + reset * of_state[1])
        if self.kind == "agru" and share is not None:
            update = share
        else:
            update = torch.sigmoid(of_input[2] + of_state[2])
            update = update if share is None else share * update
        return state + update * (candidate - state)
