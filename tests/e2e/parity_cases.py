"""One small model per sample format, trained and published, with its log and the trainer's own scores of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from elasticctr.config import parse_settings
from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import DenseSlot, Format, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.data.synth.files import write_log
from elasticctr.data.synth.spec import SynthSpec, criteo_spec, schema_spec
from elasticctr.data.vocabulary import count_vocabulary
from elasticctr.publish.dense import GraphTemplate
from elasticctr.publish.publisher import PublishedRun, Publisher
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.prediction import predict
from elasticctr.train.reading import PreparedBatch

TEXT = (Format.FEASIGN, Format.SLOT, Format.CRITEO, Format.LIBSVM, Format.LIBFFM)
FORMATS = (*TEXT, Format.CSV, Format.PARQUET)
VOCABULARY = 2000
LEARNED = 0.5  # of the log; the rest meets feasigns without a row
DENSE = [
    {"kind": "dense", "name": "x", "dim": 2, "transform": "scale", "min": [-1.0, 0.5], "diff": [2.0, 3.0]},
    {"kind": "dense", "name": "y", "transform": "log1p", "diff": [3.0]},
]
SPARSE: list[dict[str, Any]] = [
    {"name": "user"},
    {"name": "tags", "pooling": "mean", "max_values": 3, "separator": "|"},
    {"name": "history", "pooling": "none", "max_values": 4, "separator": "|"},
    {"name": "ad", "table": "ads", "separator": "|"},
]


COUNTED = (Format.SLOT, Format.CSV)  # learned with a vocabulary: rare values share a row


@dataclass(frozen=True)
class Case:
    """A model called like its format."""

    format: Format
    schema: Schema
    path: Path
    scores: NDArray[np.float32]  # the trainer's, in the order of the log

    @property
    def name(self) -> str:
        return str(self.format)

    def batches(self, size: int) -> Iterator[Batch]:
        with Dataset(str(self.path), self.schema, require_label=False).iterate(size) as batches:
            yield from batches

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def raw_samples(self) -> list[dict[str, Any]]:
        """Samples as a log holds them: text that is hashed, numbers before their transform. Not of every format."""
        if self.format is Format.CRITEO:
            return [self._criteo(line.split("\t")) for line in self.lines()]
        if self.format is Format.PARQUET:
            return [self._row(row) for row in pq.read_table(self.path).to_pylist()]
        with self.path.open(newline="") as file:
            return [self._row(row) for row in csv.DictReader(file)]

    def _criteo(self, cells: list[str]) -> dict[str, Any]:
        sample: dict[str, Any] = {
            slot.name: cell for slot, cell in zip(self.schema.sparse, cells[14:], strict=True) if cell
        }
        # Missing numbers are 0 after log1p, as 0 is before it; -0.0 where buckets tell them apart.
        return sample | {self.schema.dense[0].name: [float(cell) if cell else -0.0 for cell in cells[1:14]]}

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for slot in self.schema.logged:
            cell = row[slot.name]
            if cell is None or cell == "":
                continue
            values = cell.split(slot.separator) if isinstance(cell, str) and slot.separator else cell
            if isinstance(slot, DenseSlot):
                # A missing number is 0 after its transform; -0.0 where buckets tell it apart.
                zeros = (-0.0,) * slot.dim if slot.name in self.schema.bucketed else slot.min or (0.0,) * slot.dim
                cells = values if isinstance(values, list) else [values]
                values = [zero if cell is None else float(cell) for zero, cell in zip(zeros, cells, strict=True)]
            sample[slot.name] = values
        return sample


def make_case(folder: Path, repo: str, format: Format, rows: int) -> Case:
    """Makes a log, trains on part of it, publishes, and scores all of it offline."""
    spec = _spec(format)
    out = folder / str(format)
    write_log(spec, out, rows)
    path = next(out.glob("part-*"))
    schema = _derive(spec.written_schema)
    wide = "both" if schema.dense else "sparse"
    job = Job.model_validate(
        {
            "run_dir": str(folder / "run"),
            "schema": schema.model_dump(mode="json"),
            "data": {"train": str(path)},
            "model": {"name": "wide_deep", "dim": 8, "hidden": [32], "wide": wide},
            "train": {"threads": 1},
            "dense": {"learning_rate": 0.01},
            "sparse": {
                "optimizer": {"name": "adam", "learning_rate": 0.05},
                "vocabulary": {"min_count": 3} if format in COUNTED else None,
            },
        }
    )
    learner = Learner(job)
    dataset = Dataset(str(path), schema, ReadOptions(fraction=(0.0, LEARNED)))
    if format in COUNTED:
        with dataset.iterate(256) as batches:
            learner.plan.use(count_vocabulary(schema, batches, 3))
    steps = 0
    while steps < 20:
        with dataset.iterate(256) as batches:
            for batch in batches:
                learner.step(PreparedBatch(batch, learner.look_up(batch), {}))
                steps += 1
    everything = Dataset(str(path), schema, require_label=False)
    with everything.iterate(32) as batches:
        first = next(batches)
    publisher = Publisher(repo, str(format), reuse_graph=True)
    publisher._template = _template(learner)
    publisher.publish(learner, PublishedRun(schema, first, {}, {}, {}))
    offline = folder / f"{format}.txt"
    count = predict(learner, everything, offline, batch_size=4096, quiet=True)
    scores = np.loadtxt(offline, dtype=np.float32, ndmin=1)
    assert count == len(scores) == rows
    return Case(format, schema, path, scores)


_templates: dict[str, GraphTemplate] = {}


def _template(learner: Learner) -> GraphTemplate:
    """Exporting a graph takes seconds; models of the same shape share one and differ in its numbers."""
    shape = str([(name, tuple(value.shape)) for name, value in learner.model.state_dict().items()]) + str(
        learner.sparse.spec
    )
    if shape not in _templates:
        _templates[shape] = GraphTemplate(learner)
    return _templates[shape]


def _derive(schema: Schema) -> Schema:
    """The schema with crosses, also of sequences and buckets, and buckets of numbers that are missing at times.

    Logs of one value per slot go through a protocol that cannot leave one out, so they are without crosses.
    """
    names = [slot.name for slot in schema.sparse]
    slots: list[dict[str, Any]] = [slot.model_dump(mode="json") for slot in schema.slots]
    has_crosses = schema.format not in (Format.CRITEO, Format.LIBSVM, Format.LIBFFM)
    if has_crosses:
        slots.append({"kind": "cross", "name": "crossed", "of": [names[0], names[-1]], "dim": 0})
        slots.append({"kind": "cross", "name": "many", "of": [names[1], names[2]], "max_values": 3, "pooling": "mean"})
    if schema.dense:
        dense = schema.dense[-1]
        slots.append({"kind": "bucket", "name": "size", "of": dense.name, "index": dense.dim // 2, "by": "log2"})
        slots.append({"kind": "bucket", "name": "part", "of": schema.dense[0].name, "edges": [-0.5, 0.0, 1.0, 4.0]})
    if schema.dense and has_crosses:
        slots.append({"kind": "cross", "name": "of_size", "of": [names[0], "size"], "table": "sizes", "dim": 4})
    return parse_settings(Schema, schema.model_dump(mode="json") | {"slots": slots}, "parity")


def _spec(format: Format) -> SynthSpec:
    if format in (Format.CRITEO, Format.LIBSVM, Format.LIBFFM):
        return criteo_spec(format, cardinalities=(VOCABULARY,))
    is_table = format in (Format.CSV, Format.PARQUET)
    values = "string" if is_table or format is Format.SLOT else "id"
    sparse = [slot if is_table else {k: v for k, v in slot.items() if k != "separator"} for slot in SPARSE]
    dense = [] if format is Format.FEASIGN else DENSE
    slots = [*dense, *({**slot, "values": values} for slot in sparse)]
    schema = parse_settings(Schema, {"format": str(format), "slots": slots}, "parity")
    return schema_spec(schema, VOCABULARY)
