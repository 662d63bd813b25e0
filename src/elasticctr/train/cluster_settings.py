"""The `cluster` section of a job: which roles it trains with, and how they work together. Without it, one process."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from elasticctr.config import Settings
from elasticctr.config.tls import TlsSettings

Strategy = Literal["sync", "async", "half_async", "geo", "hybrid", "collective"]


class ClusterSettings(Settings):
    """Training with several processes."""

    strategy: Strategy = Field("async", description="how trainers share what they learn: docs/concepts/strategies.md")
    trainers: int = Field(2, ge=1, le=10_000, description="trainers to start with; more may join and some may leave")
    pservers: int = Field(1, ge=1, le=1024, description="parameter servers; none under collective")
    standby: bool = Field(False, description="a hot standby for every pserver: losing one then loses nothing")
    min_trainers: int | None = Field(None, ge=1, description="wait for so many before the first step; default: all")
    chunk_mib: float = Field(32.0, gt=0, le=4096, description="size of the chunks of the log that trainers lease")
    lease_s: float = Field(20.0, ge=1, le=3600, description="a trainer silent for this long loses its chunks")
    pserver_wait_s: float = Field(10.0, ge=1, le=3600, description="a pserver silent for this long counts as lost")
    coordinator_wait_s: float = Field(300.0, ge=1, description="how long roles keep working without a coordinator")
    checkpoint_s: float | None = Field(
        None, gt=0, description="seconds between checkpoints, besides train.checkpoint_every and each epoch's end"
    )
    pserver_memory_mib: int | None = Field(
        None,
        ge=64,
        description="the run is saved and ends when a pserver uses 90 % of this; default: of its cgroup's memory.max "
        "(shared by all in it) or of ulimit -v",
    )
    max_restarts: int = Field(10, ge=0, description="restarts of one role before the job is given up")
    staleness: int | None = Field(
        None, ge=0, description="async: pushes a trainer may have under way; default: 2. 0: each is waited for"
    )
    prefetch: bool = Field(True, description="fetch the next batch's rows while this one computes; never under sync")
    step_rows: Literal["together", "apart"] = Field(
        "together",
        description="hybrid: rows step once for all trainers' pushes, as dense parameters do; apart: with every push",
    )
    merge: int = Field(4, ge=1, le=1024, description="half_async: batches merged into one push")
    queue: int = Field(8, ge=1, le=1024, description="half_async: batches that may wait to be merged or sent")
    every: int = Field(100, ge=1, description="geo: batches between exchanges")
    rows_as: Literal["fp32", "fp16", "int8"] = Field("fp32", description="rows on the wire")
    gradients_as: Literal["fp32", "fp16", "int8"] = Field("fp32", description="gradients of rows on the wire")
    dense_gradients_as: Literal["fp32", "bf16"] | None = Field(
        None,
        description="gradients of dense parameters on the wire; default: bf16 under async (but with "
        "staleness 0) and where gradients_as is not fp32, else fp32",
    )
    host: str = Field("127.0.0.1", description="address that roles listen on; 0.0.0.0: all")
    token_file: str | None = Field(None, description="file with a secret that roles must show each other")
    insecure: bool = Field(False, description="roles may listen beyond loopback without a secret")
    tls: TlsSettings | None = Field(
        None, description="certificate that roles listen with and show, and authorities they check; default: no TLS"
    )

    @property
    def dense_encoding(self) -> str:
        """Of dense gradients on the wire."""
        if self.dense_gradients_as is not None:
            return self.dense_gradients_as
        is_exact = self.strategy != "async" or self.staleness == 0
        return "fp32" if is_exact and self.gradients_as == "fp32" else "bf16"

    @model_validator(mode="after")
    def _check(self) -> ClusterSettings:
        if self.min_trainers is not None and self.min_trainers > self.trainers:
            raise ValueError(f"min_trainers ({self.min_trainers}) is above trainers ({self.trainers})")
        if self.strategy == "collective" and self.standby:
            raise ValueError("a standby is a pserver's; collective has none")
        if self.strategy == "collective" and self.tls is not None:
            raise ValueError("tls is for pservers and the coordinator; trainers of collective talk without encryption")
        if self.tls is not None and (self.tls.cert is None) != (self.tls.ca is None):
            raise ValueError("tls of a cluster needs both cert and ca: roles listen, and call each other")
        return self
