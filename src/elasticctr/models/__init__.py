"""Dense torch modules, one file each. They see tensors, never tables, files or networks."""

from elasticctr.models.dense import load_dense
from elasticctr.models.inputs import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.models.losses import Loss, LossSettings
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
    "input_needs",
    "load_dense",
    "parse",
    "resolve",
]
