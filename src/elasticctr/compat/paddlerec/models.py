"""PaddleRec's models by their names there, and the hyper-parameters of each as settings of ours."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from elasticctr.compat.paddlerec.sections import Section
from elasticctr.errors import ConfigError
from elasticctr.models.registry import MODELS

# Names that PaddleRec spells differently, after `_normalize`.
_OTHER_NAMES = {
    "logisticregression": "lr",
    "logistic_regression": "lr",
    "dcn_v2": "dcnv2",
    "dcn2": "dcnv2",
    "sharebottom": "shared_bottom",
    "share_bottom": "shared_bottom",
    "widedeep": "wide_deep",
    "wide_and_deep": "wide_deep",
}
_OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "Adagrad": "adagrad"}
_FREE = "the model of that name here has no such setting; `elasticctr run --explain` prints the settings it has"


def find_model(given: str, candidates: list[str], source: str) -> str:
    """Our name of the model: `given` by the user, or the first of `candidates` (folder and file names) that is one."""
    for candidate in [given] if given else candidates:
        if (name := _known_name(candidate)) is not None:
            return name
    wanted = given or next((c for c in candidates if c not in ("", ".", "..")), "")
    close = difflib.get_close_matches(_normalize(wanted), [*MODELS, *_OTHER_NAMES], n=1, cutoff=0.5)
    hint = f"the nearest is {_OTHER_NAMES.get(close[0], close[0])}; " if close else ""
    raise ConfigError(
        f"{source}: which model is it? A model.py written for Paddle cannot run here. {hint}name one of our models "
        f"with -o model=NAME ({', '.join(sorted(MODELS))}), or port the network as docs/how-to/custom-model.md "
        "describes and give its path"
    )


def model_settings(name: str, parameters: Section) -> dict[str, Any]:
    """`model:` of the job file, from hyper_parameters."""
    settings: dict[str, Any] = {"name": name}
    fields: set[str] = set(MODELS[name].settings_class.model_fields) if name in MODELS else set()
    dim = parameters.integer("sparse_feature_dim", 0)
    if dim and "dim" in fields and name != "lr":
        settings["dim"] = dim
    widths = parameters.integers("fc_sizes")
    if widths is not None:
        if "hidden" in fields:
            settings["hidden"] = widths
        else:
            parameters.note("fc_sizes", f"model {name} has no tower")
    return settings


def optimizer_settings(parameters: Section) -> tuple[dict[str, Any], str]:
    """The `sparse` and `dense` sections of the job file, and the strategy if one is given there."""
    optimizer = parameters.section("optimizer")
    kind = _OPTIMIZERS[optimizer.choice("class", list(_OPTIMIZERS), "Adam")]
    rate = optimizer.number("learning_rate", 0.001)
    strategy = optimizer.text("strategy")
    optimizer.finish()
    sections = {
        "sparse": {"optimizer": {"name": kind, "learning_rate": rate}},
        "dense": {"optimizer": kind, "learning_rate": rate},
    }
    return sections, strategy


def finish_parameters(parameters: Section) -> None:
    parameters.ignore(
        {
            "sparse_feature_number": "tables grow as feasigns appear and need no size",
            "distributed_embedding": "rows are always in tables that can be shared by processes",
        }
    )
    parameters.finish_free(_FREE)


def _known_name(text: str) -> str | None:
    if Path(text).suffix == ".py" and Path(text).is_file() and Path(text).name != "model.py":
        return text  # a model of the user's own, written for us
    normal = _normalize(text)
    return normal if normal in MODELS else _OTHER_NAMES.get(normal)


def _normalize(text: str) -> str:
    """`paddlerec.models.rank.dnn`, `models/rank/dnn/` and `dnn_config.yaml` are all dnn."""
    name = text.replace("\\", "/").rstrip("/").rpartition("/")[2]
    for suffix in (".yaml", ".yml"):
        name = name.removesuffix(suffix)
    name = name.rpartition(".")[2].lower().replace("-", "_")
    for ending in ("_config_bigdata", "_config_gpubox", "_config"):
        name = name.removesuffix(ending)
    return name.removeprefix("config_")
