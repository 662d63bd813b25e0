"""The building blocks of models. Each takes tensors and returns tensors."""

from elasticctr.models.layers.mlp import MLP
from elasticctr.models.layers.native_tower import set_native_towers, set_tower_precision

__all__ = ["MLP", "set_native_towers", "set_tower_precision"]
