"""The job file: everything a training run depends on, typed.

`load_job` reads it from YAML with environment and command-line overrides; Python callers build `Job` directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from elasticctr.config import Settings, apply_overrides, load_yaml, parse_settings
from elasticctr.data.schema import Schema
from elasticctr.data.settings import DataSettings
from elasticctr.errors import ConfigError
from elasticctr.models.loss_settings import LossSettings
from elasticctr.table.settings import (
    AdamSettings,
    AdmissionSettings,
    InitializerSettings,
    OptimizerSettings,
    UniformSettings,
    ZerosSettings,
)
from elasticctr.train.cluster_settings import ClusterSettings


class JobData(Settings):
    """Where samples come from."""

    train: DataSettings = Field(description="what to learn from")
    valid: DataSettings | None = Field(None, description="evaluated while training; early stopping looks at it")
    test: DataSettings | None = Field(None, description="evaluated once, at the end, with the best state")

    @model_validator(mode="before")
    @classmethod
    def _accept_paths(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {k: {"path": v} if isinstance(v, (str, list)) else v for k, v in data.items()}


class VocabularySettings(Settings):
    """Only feasigns known before training get rows; all others of a slot share one learned row."""

    path: str | None = Field(None, description="file made by `elasticctr data vocabulary`")
    min_count: int | None = Field(
        None, ge=1, description="or: count data.train before the first step and keep feasigns seen this often"
    )

    @model_validator(mode="after")
    def _check_one(self) -> VocabularySettings:
        if (self.path is None) == (self.min_count is None):
            raise ValueError("a vocabulary comes from path or from min_count: give one of them")
        return self


class SparseSettings(Settings):
    """How the rows of sparse slots are made and learned."""

    optimizer: OptimizerSettings = Field(AdamSettings(), description="of embeddings")
    linear_optimizer: OptimizerSettings | None = Field(
        None, description="of the linear weight beside an embedding; default: the same as for embeddings"
    )
    initializer: InitializerSettings = Field(UniformSettings(), description="of embeddings")
    linear_initializer: InitializerSettings = Field(ZerosSettings(), description="of linear weights")
    admission: AdmissionSettings = Field(AdmissionSettings(), description="which new feasigns get a row")
    vocabulary: VocabularySettings | None = Field(
        None, description="which feasigns get a row, known before training; default: as admission says"
    )

    @model_validator(mode="after")
    def _check_admission(self) -> SparseSettings:
        if self.vocabulary is not None and (self.admission.count > 1 or self.admission.probability < 1):
            raise ValueError("with a vocabulary all of its feasigns get rows: leave admission out")
        return self


class DenseSettings(Settings):
    """The optimizer of the dense parameters."""

    optimizer: Literal["adam", "adamw", "adagrad", "sgd"] = Field("adam", description="as in torch.optim")
    learning_rate: float = Field(1e-3, gt=0, description="step size")
    weight_decay: float = Field(0.0, ge=0, description="L2 added to the gradient; for adamw, decoupled from it")
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm of the dense parameters")


class EarlyStopping(Settings):
    """Stop when the validation metric has not improved for `patience` evaluations."""

    metric: Literal["auc", "gauc", "logloss"] = Field("auc", description="of the validation data")
    label: str | None = Field(None, description="whose metric, of several labels; default: the first one's")
    patience: int = Field(2, ge=1, description="evaluations without improvement until the run stops")
    min_delta: float = Field(1e-5, ge=0, description="what counts as an improvement")


class Plateau(Settings):
    """Multiply the learning rate by `factor` when the validation metric stalls for `patience` evaluations."""

    metric: Literal["auc", "gauc", "logloss"] = Field("auc", description="of the validation data")
    label: str | None = Field(None, description="whose metric, of several labels; default: the first one's")
    factor: float = Field(0.1, gt=0, lt=1, description="multiplies every learning rate")
    patience: int = Field(1, ge=1, description="evaluations without improvement until it does")
    min_delta: float = Field(1e-5, ge=0, description="what counts as an improvement")
    min_scale: float = Field(1e-4, gt=0, description="never below this fraction of the starting rate")


class TrainSettings(Settings):
    """How a run trains."""

    batch_size: int = Field(512, ge=1, le=1 << 22, description="samples per step")
    epochs: int = Field(1, ge=1, description="passes over the training data")
    steps: int | None = Field(None, ge=1, description="stop after this many batches, whatever the epoch")
    eval_every: int | None = Field(None, ge=1, description="batches between evaluations; default: each epoch's end")
    eval_batch_size: int = Field(8192, ge=1, description="samples scored at once; changes no result")
    early_stopping: EarlyStopping | None = Field(None, description="when to stop before the last epoch")
    plateau: Plateau | None = Field(None, description="when to lower the learning rates")
    warmup_steps: int = Field(0, ge=0, description="batches over which the learning rate rises from 0")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the dense arithmetic; parameters stay fp32")
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="where the dense part computes, in one process; tables stay in this machine's memory"
    )
    compile: bool = Field(False, description="compile the dense model with torch.compile (needs a C++ compiler)")
    threads: int | None = Field(None, ge=1, description="default: every CPU this process may use")
    seed: int = Field(0, ge=0, lt=1 << 63, description="of initial values, shuffling and dropout")
    deterministic: bool = Field(
        False, description="bit-identical checkpoints from run to run, for any number of threads; see training.md"
    )
    gauc_slot: str | None = Field(None, description="slot whose first value groups samples for GAUC")
    checkpoint_every: int | None = Field(
        None, ge=1, description="batches between checkpoints; default: after each epoch"
    )
    keep_checkpoints: int = Field(2, ge=1, description="the newest ones kept; the best is kept besides")
    log_every: int = Field(100, ge=1, description="batches between lines in events.jsonl")


class PublishSettings(Settings):
    """Publish while training: a version every so many batches and at the end of each epoch."""

    to: str = Field(min_length=1, description="repository: directory, s3:// or hdfs:// URL")
    model: str | None = Field(None, description="name of the model; default: the run directory's")
    every_steps: int | None = Field(None, ge=1, description="batches between versions; default: each epoch's end only")
    encoding: Literal["fp32", "fp16", "int8"] = Field("fp32", description="encoding of the rows")
    max_chain: int = Field(24, ge=0, description="deltas on one base before the next base; 0: bases only")
    keep: int | None = Field(
        None, ge=1, description="number of newest versions to keep, besides those in use; default: all"
    )


class JobModel(Settings):
    """A model by name or by the path of your own, and its settings."""

    model_config = Settings.model_config | {"extra": "allow"}

    name: str = Field("wide_deep", description="one of docs/models, or path/to/model.py[:Class]")

    @property
    def options(self) -> dict[str, Any]:
        """The settings that belong to the model itself."""
        return dict(self.model_extra or {})


class Job(Settings):
    """One training run."""

    run_dir: str = Field("runs/latest", description="directory for everything the run writes")
    samples: Schema = Field(alias="schema", description="inline, or the path of a schema file")
    data: JobData = Field(description="where samples come from")
    model: JobModel = Field(JobModel(), description="which model, and its settings")
    sparse: SparseSettings = Field(SparseSettings(), description="rows of sparse slots")
    dense: DenseSettings = Field(DenseSettings(), description="optimizer of the dense parameters")
    loss: LossSettings = Field(LossSettings(), description="the loss to minimise")
    train: TrainSettings = Field(TrainSettings(), description="how a run trains")
    cluster: ClusterSettings | None = Field(None, description="train with several processes; default: in one")
    publish: PublishSettings | None = Field(None, description="where versions go while training; default: nowhere")

    model_config = Settings.model_config | {"populate_by_name": True}

    @model_validator(mode="after")
    def _check(self) -> Job:
        for name in ("early_stopping", "plateau"):
            if getattr(self.train, name) is not None and self.data.valid is None:
                raise ValueError(f"train.{name} needs data.valid")
            chosen = getattr(self.train, name)
            if chosen is not None and chosen.metric == "gauc" and self.train.gauc_slot is None:
                raise ValueError(f"train.{name} with metric gauc needs train.gauc_slot")
            if chosen is not None and chosen.label is not None and chosen.label not in self.samples.label:
                known = ", ".join(self.samples.label)
                raise ValueError(f"train.{name}.label: {chosen.label!r} is not a label of the schema; it has {known}")
        slots = [slot.name for slot in self.samples.sparse]
        if self.train.gauc_slot is not None and self.train.gauc_slot not in slots:
            raise ValueError(f"train.gauc_slot: {self.train.gauc_slot!r} is not a sparse slot of the schema")
        self.loss.check_names(self.samples.label, slots)
        if self.train.deterministic and self.train.compile:
            raise ValueError("train.deterministic does not cover code that train.compile generates: choose one of them")
        if self.train.deterministic and self.cluster is not None:
            raise ValueError(
                "train.deterministic is for one process: with several, the order of updates differs from run to run. "
                "Leave out the cluster section, or train.deterministic"
            )
        if self.train.device != "cpu" and (self.cluster is not None or self.train.deterministic):
            other = "the cluster section" if self.cluster is not None else "train.deterministic"
            raise ValueError(
                f"train.device {self.train.device} is for one process, and a GPU adds in no fixed order: leave out "
                f"{other}, or train.device"
            )
        vocabulary = self.sparse.vocabulary
        if self.cluster is not None and vocabulary is not None and vocabulary.path is None:
            raise ValueError(
                "sparse.vocabulary.min_count counts in one process; for several make the file first with "
                "elasticctr data vocabulary, and name it in sparse.vocabulary.path"
            )
        if self.cluster is not None and self.cluster.strategy == "geo":
            self._check_geo()
        return self

    def _check_geo(self) -> None:
        # Trainers step copies of rows, and only weights are exchanged.
        if self.sparse.admission.count > 1 or self.sparse.admission.probability < 1:
            raise ValueError("cluster.strategy geo gives every feasign a row: leave sparse.admission out")
        if "ftrl" in (self.sparse.optimizer.name, (self.sparse.linear_optimizer or self.sparse.optimizer).name):
            raise ValueError("cluster.strategy geo cannot exchange rows of ftrl, whose weights follow from its sums")


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """The job in a YAML file. Paths inside it are relative to the working directory, its schema's to the file."""
    settings = apply_overrides(load_yaml(path), overrides)
    given = settings.get("schema")
    if isinstance(given, str):
        beside = Path(path).parent / given
        schema_path = beside if beside.exists() or Path(given).is_absolute() else Path(given)
        settings["schema"] = parse_settings(Schema, load_yaml(schema_path), str(schema_path)).model_dump(mode="json")
    elif given is None:
        raise ConfigError(
            f"{path}: 'schema' is required: the path of a schema file "
            "(elasticctr data inspect LOG --out schema.yaml writes one) or the slots themselves"
        )
    return parse_settings(Job, settings, str(path))
