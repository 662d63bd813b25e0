"""Settings that models with several labels share."""

from __future__ import annotations

from pydantic import Field

from elasticctr.models.layers.mlp import MLP
from elasticctr.models.model import TowerSettings, Widths


class TaskSettings(TowerSettings):
    """`hidden` is for the shared part, `head_hidden` for each label's own head."""

    head_hidden: Widths = Field((64,), description="widths of the hidden layers of each label's head; [] for none")

    def head(self, in_features: int) -> MLP:
        """The tower that computes one label's logit from the shared part."""
        return MLP(in_features, self.head_hidden, 1, self.dropout, self.batch_norm, self.activation)
