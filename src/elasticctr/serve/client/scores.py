"""Writes the scores of many requests to a file: text, one line per sample, or Parquet. Complete or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from elasticctr.errors import ConfigError
from elasticctr.storage.atomic import atomic_file


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
    with atomic_file(out, overwrite=True) as file:
        if out.suffix == ".parquet":
            _write_parquet(file, rows, labels)
        else:
            file.write("".join("\t".join(f"{score:.9g}" for score in row) + "\n" for row in rows.tolist()).encode())


def _write_parquet(file: IO[bytes], rows: NDArray[np.float32], labels: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["score"] if len(labels) <= 1 else [f"score_{name}" for name in labels]
    columns = [pa.array(column, from_pandas=True) for column in rows.T]  # nan becomes null
    pq.write_table(pa.table(columns, names=names), file)
