"""Makes a model that is ready to train from a name, a user's file or a class.

A model is named in a job as `deepfm`, or as `path/to/model.py:ClassName`; a file with one model needs no class name.
Any error in a user's file is a ConfigError that names the file and line.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError, ElasticCTRError
from elasticctr.models.autoint import AutoInt
from elasticctr.models.bst import BST
from elasticctr.models.dcn import DCN
from elasticctr.models.dcnv2 import DCNv2
from elasticctr.models.deepfm import DeepFM
from elasticctr.models.dien import DIEN
from elasticctr.models.din import DIN
from elasticctr.models.dlrm import DLRM
from elasticctr.models.dnn import DNN
from elasticctr.models.edcn import EDCN
from elasticctr.models.esmm import ESMM
from elasticctr.models.ffm import FFM
from elasticctr.models.fibinet import FiBiNET
from elasticctr.models.finalmlp import FinalMLP
from elasticctr.models.finalnet import FinalNet
from elasticctr.models.fm import FM
from elasticctr.models.fwfm import FwFM
from elasticctr.models.gdcn import GDCN
from elasticctr.models.initialize import seeded
from elasticctr.models.inputs import Inputs, InputSpec, Sequence
from elasticctr.models.lr import LR
from elasticctr.models.masknet import MaskNet
from elasticctr.models.mmoe import MMoE
from elasticctr.models.model import InputNeeds, Model, ModelSettings, evaluating
from elasticctr.models.ple import PLE
from elasticctr.models.shared_bottom import SharedBottom
from elasticctr.models.sim import SIM
from elasticctr.models.user_file import explain, load_class
from elasticctr.models.wide_deep import WideDeep
from elasticctr.models.wukong import Wukong
from elasticctr.models.xdeepfm import XDeepFM

MODELS: dict[str, type[Model]] = {
    "autoint": AutoInt,
    "bst": BST,
    "dcn": DCN,
    "dcnv2": DCNv2,
    "deepfm": DeepFM,
    "dien": DIEN,
    "din": DIN,
    "dlrm": DLRM,
    "dnn": DNN,
    "edcn": EDCN,
    "esmm": ESMM,
    "ffm": FFM,
    "fibinet": FiBiNET,
    "finalmlp": FinalMLP,
    "finalnet": FinalNet,
    "fm": FM,
    "fwfm": FwFM,
    "gdcn": GDCN,
    "lr": LR,
    "masknet": MaskNet,
    "mmoe": MMoE,
    "ple": PLE,
    "shared_bottom": SharedBottom,
    "sim": SIM,
    "wide_deep": WideDeep,
    "wukong": Wukong,
    "xdeepfm": XDeepFM,
}


def resolve(model: str | type[Model], folder: str | Path = ".") -> type[Model]:
    """The class of a model. Relative paths of users' files start at `folder`."""
    if isinstance(model, type):
        if not issubclass(model, Model):
            raise ConfigError(f"{model.__name__} is not a model: derive it from elasticctr.models.Model")
        return model
    if model in MODELS:
        return MODELS[model]
    path, _, class_name = model.partition(".py:")
    if class_name:
        return load_class(Path(folder) / f"{path}.py", class_name)
    if model.endswith(".py"):
        return load_class(Path(folder) / model, None)
    close = difflib.get_close_matches(model, MODELS, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(MODELS)}."
    raise ConfigError(f"unknown model {model!r}; {hint} Give your own model as path/to/model.py:ClassName")


def parse(cls: type[Model], settings: Mapping[str, Any] | ModelSettings | None, source: str = "model") -> ModelSettings:
    """Settings of a model. `source` names the file in messages."""
    if isinstance(settings, ModelSettings):
        if not isinstance(settings, cls.settings_class):
            raise ConfigError(
                f"{source}: {cls.name!r} needs {cls.settings_class.__name__}, not {type(settings).__name__}"
            )
        return settings
    return parse_settings(cls.settings_class, settings or {}, source)


def input_needs(cls: type[Model], settings: ModelSettings) -> InputNeeds:
    """What a model needs in its rows."""
    try:
        return InputNeeds(*cls.input_needs(settings))
    except ElasticCTRError:
        raise
    except Exception as e:
        raise ConfigError(f"input_needs of model {cls.name!r} fails: {explain(e, cls)}") from e


def create(
    model: str | type[Model],
    spec: InputSpec,
    settings: Mapping[str, Any] | ModelSettings | None = None,
    *,
    seed: int = 0,
    folder: str | Path = ".",
    source: str = "model",
) -> Model:
    """A model whose initial parameters depend only on `seed`, tried once on a small batch of zeros."""
    cls = resolve(model, folder)
    parsed = parse(cls, settings, source)
    with seeded(seed):
        try:
            created = cls(spec, parsed)
        except ElasticCTRError:
            raise
        except Exception as e:
            raise ConfigError(f"model {cls.name!r} cannot be built: {explain(e, cls)}") from e
        _try(created)
    return created


def zeros(spec: InputSpec, batch: int) -> Inputs:
    """Inputs of the right shape, all zeros."""
    sequences = {
        s.name: Sequence(torch.zeros(batch, s.max_values, s.dim), torch.zeros(batch, dtype=torch.int64))
        for s in spec.sequences
    }
    return Inputs(spec, torch.zeros(batch, spec.width), sequences)


def _try(model: Model) -> None:
    """Finds a model that fails or returns the wrong thing before any data is read."""
    batch = 3
    labels = model.spec.labels
    expected = [batch] if labels == 1 else [batch, labels]
    try:
        with evaluating(model):
            logits: object = model(zeros(model.spec, batch))
            returned: object = model.training_forward(zeros(model.spec, batch))
    except ElasticCTRError:
        raise
    except Exception as e:
        raise ConfigError(f"forward of model {model.name!r} fails: {explain(e, type(model))}") from e
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        shown = logits.dtype if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ConfigError(f"forward of model {model.name!r} must return a float tensor of logits, but returned {shown}")
    if list(logits.shape) != expected:
        hint = "; return self.to_logits(x) drops the last axis" if list(logits.shape) == [batch, 1] else ""
        raise ConfigError(
            f"forward of model {model.name!r} returned shape {list(logits.shape)} for a batch of {batch} samples, "
            f"expected {expected} (one logit per sample{' and label' if labels > 1 else ''}){hint}"
        )
    _check_training(model, returned, ([batch], expected))


def _check_training(model: Model, returned: object, shapes: tuple[list[int], list[int]]) -> None:
    what = f"training_forward of model {model.name!r}"
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ConfigError(f"{what} must return two things: logits, and auxiliary losses or None")
    logits, losses = returned
    if not isinstance(logits, torch.Tensor) or list(logits.shape) != shapes[1]:
        raise ConfigError(f"{what} must return the logits of forward first, of shape {shapes[1]}")
    if losses is not None and (not isinstance(losses, torch.Tensor) or list(losses.shape) not in shapes):
        shown = list(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise ConfigError(
            f"{what} returned auxiliary losses of {shown} for a batch of {shapes[0][0]} samples, expected "
            f"{' or '.join(str(list(s)) for s in dict.fromkeys(map(tuple, shapes)))}: one per sample, not their mean"
        )
