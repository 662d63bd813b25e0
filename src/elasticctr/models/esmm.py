"""ESMM (Ma et al., 2018): conversion after a click, learned from all samples shown and not only from clicked ones.

Labels are click, and conversion as seen in the log (a conversion needs a click). Logits are those of the click, and of
click and conversion, whose probability is that of the click times that of conversion after it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elasticctr.models.inputs import Inputs, InputSpec
from elasticctr.models.layers.features import deep_features, deep_width
from elasticctr.models.model import Model, TowerSettings


def both(a: Tensor, b: Tensor) -> Tensor:
    """The logit of sigmoid(a) * sigmoid(b), finite for all finite a and b.

    The odds are 1 / (exp(-a) + exp(-b) + exp(-a - b)), so no probability is computed that could round to 0 or 1.
    """
    return -torch.logsumexp(torch.stack([-a, -b, -a - b]), dim=0)


class ESMM(Model):
    name = "esmm"
    settings_class = TowerSettings
    is_tower = True
    labels_needed = 2

    def __init__(self, spec: InputSpec, settings: TowerSettings) -> None:
        super().__init__(spec, settings)
        self.click = settings.tower(deep_width(spec), 1)
        self.conversion = settings.tower(deep_width(spec), 1)

    def heads(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Logits [B] of the click, and of the conversion of a clicked sample."""
        features = deep_features(inputs)
        return self.click(features).squeeze(1), self.conversion(features).squeeze(1)

    def forward(self, inputs: Inputs) -> Tensor:
        """[B, 2]: logits of the click, and of click and conversion."""
        click, conversion = self.heads(inputs)
        return torch.stack([click, both(click, conversion)], dim=1)
