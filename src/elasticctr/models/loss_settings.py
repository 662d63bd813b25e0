"""Settings of the loss. Separate from losses.py so that reading a job file does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from elasticctr.config import Settings


class LossSettings(Settings):
    kind: Literal["bce", "focal", "jrc"] = Field(
        "bce", description="bce: cross-entropy; focal: easy samples count less; jrc: also ranks within groups"
    )
    positive_weight: float = Field(1.0, gt=0, description="weight of positive samples; above 1 raises predictions")
    label_smoothing: float = Field(0.0, ge=0.0, lt=1.0, description="e moves labels to e / 2 and 1 - e / 2")
    gamma: float = Field(2.0, ge=0.0, le=20.0, description="focal: how much easy samples are reduced; 0: not at all")
    calibration: float = Field(0.5, gt=0.0, le=1.0, description="jrc: share of cross-entropy; the rest is ranking")
    jrc_hidden: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(
        (64,), description="jrc: widths of the tower that makes the second logit of each label; [] for none"
    )
    pairwise: float = Field(0.0, ge=0.0, description="weight of an additional pairwise loss; 0: none")
    pairs_per_positive: int = Field(512, ge=1, le=65536, description="pairwise: negatives a positive is compared with")
    group: str | None = Field(
        None, description="slot by whose first value samples are ranked (pairwise, jrc); default: the whole batch"
    )
    negative_rate: float = Field(
        1.0, gt=0.0, le=1.0, description="share of the first label's negatives that the training data still hold"
    )
    delayed: Literal["none", "fnw", "fnc"] = Field(
        "none",
        description="late positives are logged as negatives first; correct by weights (fnw) or calibration (fnc)",
    )
    delayed_label: str | None = Field(None, description="the label that arrives late; default: the last one")
    task_weights: Literal["uncertainty"] | dict[str, Annotated[float, Field(ge=0.0)]] = Field(
        {}, description="weight of each label's loss by name, 1 for those not named; uncertainty: learned"
    )
    embedding_l2: float = Field(0.0, ge=0.0, description="penalty on the squared embeddings a batch uses, per sample")

    @model_validator(mode="after")
    def _check(self) -> LossSettings:
        if self.delayed != "none" and self.kind != "bce":
            raise ValueError(f"delayed feedback needs kind: bce, not {self.kind}")
        if self.delayed == "fnw" and self.negative_rate < 1:
            raise ValueError("delayed: fnw needs the rates of the whole log; with negative_rate use delayed: fnc")
        if isinstance(self.task_weights, dict) and self.task_weights and not any(self.task_weights.values()):
            raise ValueError("task_weights: not all can be 0")
        return self

    def check_names(self, labels: Sequence[str], slots: Sequence[str]) -> None:
        """Raises ValueError unless labels and slots named here are among these."""
        named = [self.delayed_label] if self.delayed_label is not None else []
        named += list(self.task_weights) if isinstance(self.task_weights, dict) else []
        for label in named:
            if label not in labels:
                raise ValueError(f"loss: {label!r} is not a label of the schema; it has {', '.join(labels)}")
        if self.group is not None and self.group not in slots:
            raise ValueError(f"loss.group: {self.group!r} is not a sparse slot of the schema")
