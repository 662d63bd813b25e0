"""What a user says about the loss. Apart from losses.py, so that reading a job file does not wait for torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from elasticctr.config import Settings


class LossSettings(Settings):
    kind: Literal["bce", "focal"] = Field("bce", description="bce: cross-entropy; focal: easy samples count less")
    positive_weight: float = Field(1.0, gt=0, description="weight of positive samples; above 1 raises predictions")
    label_smoothing: float = Field(0.0, ge=0.0, lt=1.0, description="e moves labels to e / 2 and 1 - e / 2")
    gamma: float = Field(2.0, ge=0.0, le=20.0, description="focal: how much less easy samples count; 0: not at all")
    embedding_l2: float = Field(0.0, ge=0.0, description="penalty on the squared embeddings a batch uses, per sample")
