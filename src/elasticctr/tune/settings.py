"""Settings of a search: the job, which of its settings may change, and how many trials to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from elasticctr.config import Settings, apply_overrides, load_yaml, parse_settings
from elasticctr.errors import ConfigError

Bounds = tuple[float, float]


class Parameter(Settings):
    """The values that a setting may have: give exactly one of choice, uniform, log, integer"""

    choice: tuple[Any, ...] | None = Field(None, description="any of these values, which may be lists")
    uniform: Bounds | None = Field(None, description="a number between these two")
    log: Bounds | None = Field(None, description="a number between these two, uniform in its logarithm")
    integer: tuple[int, int] | None = Field(None, description="a whole number between these two, both included")
    step: float | None = Field(None, gt=0, description="for uniform and integer: distance between values")

    @model_validator(mode="after")
    def _check(self) -> Parameter:
        kinds = [name for name in ("choice", "uniform", "log", "integer") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("give exactly one of choice, uniform, log, integer")
        if self.choice is not None:
            texts = [json.dumps(value, sort_keys=True) for value in self.choice]
            if len(set(texts)) < max(len(texts), 1):
                raise ValueError("choice needs at least one value, and no value twice")
            if self.step is not None:
                raise ValueError("step is only for uniform and integer")
            return self
        low, high = getattr(self, kinds[0])
        if not low < high:
            raise ValueError(f"{kinds[0]}: the first bound must be below the second, not {low} and {high}")
        if self.log is not None and (low <= 0 or self.step is not None):
            raise ValueError("log needs bounds above 0 and no step")
        if self.integer is not None and self.step is not None and self.step != int(self.step):
            raise ValueError("the step of an integer must be a whole number")
        return self


class Pruning(Settings):
    """Ends runs early that do worse than earlier ones at the same evaluation."""

    kind: Literal["median", "hyperband", "none"] = Field(
        "median", description="median: those below the median of earlier runs; hyperband: the worst of growing groups"
    )
    startup: int = Field(5, ge=1, description="median: first runs that are never ended, for comparison")
    warmup: int = Field(1, ge=0, description="median: evaluations before a run may be ended")


class TuneSettings(Settings):
    """Settings of a search."""

    job: str = Field(description="job file, relative to this file; it needs data.valid")
    study_dir: str = Field("tune", description="directory for everything the search writes")
    space: dict[str, Parameter] = Field(min_length=1, description="setting of the job (model.dim) -> its values")
    metric: Literal["auc", "gauc", "logloss"] = Field("auc", description="of the validation data; logloss is minimised")
    trials: int = Field(20, ge=1, description="number of settings to try")
    repeats: int = Field(1, ge=1, description="runs of each with different seeds; their mean is what counts")
    parallel: int = Field(1, ge=1, description="concurrent runs; they share this machine's CPUs")
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe", description="tpe: learns which values are good; grid: tries every combination"
    )
    pruning: Pruning = Field(Pruning(), description="when to end a run that will not win")
    seed: int = Field(0, ge=0, lt=1 << 32, description="seed of the sampler")
    keep: Literal["best", "all"] = Field("best", description="trials whose checkpoints are kept; reports always are")

    @model_validator(mode="after")
    def _check(self) -> TuneSettings:
        if self.sampler == "grid" and any(p.choice is None and p.step is None for p in self.space.values()):
            raise ValueError("sampler grid needs a choice, or a step, for every setting of the space")
        for key in self.space:
            if not all(key.split(".")) or key.split(".")[0] in ("run_dir", "data", "cluster", "publish"):
                raise ValueError(f"space: {key!r} cannot be searched; give a setting such as model.dim")
        return self


def load_tune(path: str | Path, overrides: list[str]) -> TuneSettings:
    """The search in a YAML file; makes the job's path relative to the working directory."""
    settings = parse_settings(TuneSettings, apply_overrides(load_yaml(path), overrides, environ={}), str(path))
    job = Path(path).parent / settings.job
    if not job.exists():
        raise ConfigError(f"{path}: job: {job} does not exist; give the path of a job file, relative to {path}")
    return settings.model_copy(update={"job": str(job)})


def as_overrides(values: Mapping[str, Any]) -> list[str]:
    """`--set` arguments that give a job these values."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]
