"""How a sample set is read: the `data` sections of a job file and the options of `Dataset`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from elasticctr.storage.locations import LocationOptions


class ReadOptions(LocationOptions):
    """Everything about reading that does not depend on where the samples are."""

    fraction: tuple[float, float] = Field(
        (0.0, 1.0), description="part of the samples to keep, [from, to), chosen by a hash of each line"
    )
    split_seed: int = Field(0, ge=0, lt=1 << 64, description="another seed makes another split by fraction")
    shuffle_rows: int = Field(
        0, ge=0, le=1 << 30, description="samples mixed at a time, and files in random order; 0: as they stand"
    )
    prefetch: int = Field(4, ge=0, le=1024, description="batches made ahead in the background; 0: no threads")
    workers: int | None = Field(None, ge=1, le=256, description="parsing threads; default: the CPUs, at most 4")
    on_bad: Literal["skip", "fail"] = Field("skip", description="bad lines: skip and count them, or fail at the first")
    max_bad_fraction: float = Field(
        0.01, ge=0, le=1, description="fail when more than this part of at least 1000 lines is bad"
    )
    cache: str | None = Field(None, description="directory that keeps the parsed samples; rebuilt when stale")
    block_bytes: int = Field(4 << 20, ge=1 << 10, le=1 << 30, description="text parsed at a time")
    max_line_bytes: int = Field(16 << 20, ge=1 << 10, le=1 << 30, description="a longer line is a bad line")

    @model_validator(mode="after")
    def _check(self) -> ReadOptions:
        low, high = self.fraction
        if not 0.0 <= low < high <= 1.0:
            raise ValueError(f"fraction must be [from, to) with 0 <= from < to <= 1, not [{low}, {high}]")
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end go together")
        return self


class DataSettings(ReadOptions):
    """A sample set: where it is and how it is read."""

    path: str | tuple[str, ...] = Field(
        description="file, directory, glob, date tree or URL, or a list of them: plain, .gz or .zst"
    )
    joined: Literal["feasign", "slot"] | None = Field(
        None, description="these files come from feedback join: of this format, values and floats ready, not raw"
    )
