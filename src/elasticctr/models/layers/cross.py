"""Cross layers of DCN-V2 (Wang et al., WWW 2021): x_{l+1} = x_0 * (W_l x_l + b_l) + x_l.

Layer l holds products of up to l + 1 features. With a rank r, W_l = U_l V_l: 2 r D weights instead of D².
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Cross(nn.Module):
    """[B, width] → [B, width] through `layers` cross layers; `rank` 0 means a full matrix."""

    def __init__(self, width: int, layers: int, rank: int = 0) -> None:
        super().__init__()
        self.full = nn.ModuleList()
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        for _ in range(layers):
            if rank == 0:
                self.full.append(_linear(width, width, bias=True))
            else:
                self.down.append(_linear(width, rank, bias=False))
                self.up.append(_linear(rank, width, bias=True))

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for full in self.full:
            x = torch.addcmul(x, x0, full(x))
        for down, up in zip(self.down, self.up, strict=True):
            x = torch.addcmul(x, x0, up(down(x)))
        return x


class VectorCross(nn.Module):
    """Cross layers of DCN (Wang et al., ADKDD 2017): x_{l+1} = x_0 (w_l · x_l) + b_l + x_l.

    Every x_l is a_l x_0 + c_l, for a number a_l per sample and a vector c_l shared by all, so a layer costs one number
    and only the last x_l is computed in full.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers, width))
        self.bias = nn.Parameter(torch.zeros(layers, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, x0: Tensor) -> Tensor:
        products = x0 @ self.weight.T  # w_l · x_0
        shift = torch.zeros_like(self.bias[0])
        scale = torch.ones_like(products[:, 0])
        for layer, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            scale = scale * (1 + products[:, layer]) + shift @ weight
            shift = shift + bias
        return torch.addcmul(shift, x0, scale.unsqueeze(1))


class MixtureCross(nn.Module):
    """Cross layers of DCN-V2 as a mixture of low-rank experts, weighted by softmax gates that read the layer's input:

    x_{l+1} = x_0 * (Σ_e g_e(x_l) U_e tanh(C_e tanh(V_e x_l)) + b_l) + x_l
    """

    def __init__(self, width: int, layers: int, rank: int, experts: int) -> None:
        super().__init__()
        self.rank, self.experts = rank, experts
        self.down = nn.ModuleList(_linear(width, experts * rank, bias=False) for _ in range(layers))
        self.middle = nn.ParameterList(nn.Parameter(torch.empty(experts, rank, rank)) for _ in range(layers))
        self.up = nn.ModuleList(_linear(experts * rank, width, bias=True) for _ in range(layers))
        self.gates = nn.ModuleList(_linear(width, experts, bias=True) for _ in range(layers))
        for middle in self.middle:
            nn.init.normal_(middle, std=rank**-0.5)

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for down, middle, up, gate in zip(self.down, self.middle, self.up, self.gates, strict=True):
            inner = torch.tanh(down(x)).reshape(-1, self.experts, self.rank).transpose(0, 1)
            # Gates sum to 1, so the experts' biases add up to the one bias.
            weighted = torch.tanh(torch.bmm(inner, middle)).transpose(0, 1) * torch.softmax(gate(x), dim=1).unsqueeze(2)
            x = torch.addcmul(x, x0, up(weighted.flatten(1)))
        return x


def _linear(width: int, out: int, bias: bool) -> nn.Linear:
    linear = nn.Linear(width, out, bias=bias)
    nn.init.xavier_normal_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
