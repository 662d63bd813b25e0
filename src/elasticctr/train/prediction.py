"""Writes the scores of a data set as text (one line per sample) or Parquet, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console

from elasticctr.data.dataset import Dataset
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress
from elasticctr.storage.atomic import atomic_file
from elasticctr.train.evaluation import score
from elasticctr.train.learner import Learner


class _Writer(Protocol):
    def write(self, scores: NDArray[np.float32], labels: NDArray[np.float32]) -> None: ...

    def close(self) -> None: ...


def predict(learner: Learner, dataset: Dataset, out: Path, *, batch_size: int, quiet: bool = False) -> int:
    """Scores every sample of `dataset` into `out` (.parquet, or text otherwise). Returns the number of samples."""
    names = list(dataset.schema.label)
    rows = 0
    console = Console(quiet=True) if quiet else None
    if out.is_dir():
        raise ConfigError(f"{out}: is a directory; give the name of a file to write scores to")
    with atomic_file(out, overwrite=True) as file, Progress("predicting", console=console) as progress:
        writer: _Writer = _ParquetWriter(file, names) if out.suffix == ".parquet" else _TextWriter(file)
        try:
            for batch, logits in score(learner, dataset, batch_size=batch_size):
                writer.write(sigmoid(logits.reshape(len(batch), -1)), batch.labels)
                rows += len(batch)
                progress.advance(len(batch))
        finally:
            writer.close()
    return rows


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    half = np.tanh(logits.astype(np.float64) / 2) / 2
    return (half + 0.5).astype(np.float32)


class _TextWriter:
    """`score` per line; with several labels their scores separated by a TAB."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, scores: NDArray[np.float32], labels: NDArray[np.float32]) -> None:
        lines = ("\t".join(f"{x:.9g}" for x in row) + "\n" for row in scores.tolist())
        self._file.write("".join(lines).encode("ascii"))

    def close(self) -> None:
        pass


class _ParquetWriter:
    """Columns `score` and `label`, named by label when there are several."""

    def __init__(self, file: IO[bytes], labels: list[str]) -> None:
        suffixes = [""] if len(labels) == 1 else [f"_{name}" for name in labels]
        self._names = [f"{kind}{suffix}" for kind in ("score", "label") for suffix in suffixes]
        self._schema = pa.schema([(name, pa.float32()) for name in self._names])
        self._writer: Any = pq.ParquetWriter(file, self._schema)

    def write(self, scores: NDArray[np.float32], labels: NDArray[np.float32]) -> None:
        columns = [pa.array(column) for column in (*scores.T, *labels.T)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
