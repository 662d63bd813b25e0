"""Writes the scores of many requests to a file: text, one line per sample, or Parquet. Complete or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticctr.errors import ConfigError, InternalError


def write_scores(
    out: Path, counts: Sequence[int], scores: Mapping[int, NDArray[np.float32] | None], labels: Sequence[str]
) -> None:
    """`counts` has the samples of each request, `scores` its scores by number: nan (text) or null if there are none."""
    if out.is_dir():
        raise ConfigError(f"{out}: is a directory; give the name of a file for the scores")
    width = max(1, len(labels))
    parts = []
    for number, count in enumerate(counts):
        part = scores.get(number)
        parts.append(np.full((count, width), np.nan, np.float32) if part is None else part.reshape(count, -1))
    rows = np.concatenate(parts) if parts else np.zeros((0, width), np.float32)
    temporary = out.with_name(f".{out.name}.writing")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".parquet":
            _write_parquet(temporary, rows, labels)
        else:
            text = "".join("\t".join(f"{score:.9g}" for score in row) + "\n" for row in rows.tolist())
            temporary.write_text(text, encoding="ascii")
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as e:
        reason = "the disk is full" if e.errno == errno.ENOSPC else f"cannot be written: {e.strerror or e}"
        raise InternalError(f"{out}: {reason}; no file was left behind") from e
    finally:
        temporary.unlink(missing_ok=True)


def _write_parquet(path: Path, rows: NDArray[np.float32], labels: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["score"] if len(labels) <= 1 else [f"score_{name}" for name in labels]
    columns = [pa.array(column, from_pandas=True) for column in rows.T]  # nan becomes null
    pq.write_table(pa.table(columns, names=names), path)
