"""Dense torch modules, one file each. They see tensors, but no tables, files or networks.

Names are loaded on first use, so that `models.cpu` can set up the environment before torch is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticctr.models.dense import load_dense
    from elasticctr.models.export import export_onnx
    from elasticctr.models.inputs import Inputs, InputSpec, Sequence, SequenceSpec
    from elasticctr.models.loss_settings import LossSettings
    from elasticctr.models.losses import Loss
    from elasticctr.models.model import InputNeeds, Model, ModelSettings, TowerSettings
    from elasticctr.models.registry import MODELS, create, input_needs, parse, resolve

__all__ = [
    "MODELS",
    "InputNeeds",
    "InputSpec",
    "Inputs",
    "Loss",
    "LossSettings",
    "Model",
    "ModelSettings",
    "Sequence",
    "SequenceSpec",
    "TowerSettings",
    "create",
    "export_onnx",
    "input_needs",
    "load_dense",
    "parse",
    "resolve",
]

_HOMES = {
    "dense": ("load_dense",),
    "export": ("export_onnx",),
    "inputs": ("InputSpec", "Inputs", "Sequence", "SequenceSpec"),
    "loss_settings": ("LossSettings",),
    "losses": ("Loss",),
    "model": ("InputNeeds", "Model", "ModelSettings", "TowerSettings"),
    "registry": ("MODELS", "create", "input_needs", "parse", "resolve"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
