"""Publishes what a learner has learned: `Publisher.publish` for one that lives in this process, `publish_run` for a run
directory. The order of writing is writer.py's; torch is dense.py's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.errors import ElasticCTRError, InternalError, NotFound
from elasticctr.publish import dense
from elasticctr.publish.encoding import decode_rows, encode_rows
from elasticctr.publish.manifest import Encoding, Manifest, Segment, check_name
from elasticctr.publish.repository import Repository
from elasticctr.publish.samples import SAMPLES, format_samples, make_batch
from elasticctr.publish.scoring import DenseGraph, make_inputs
from elasticctr.publish.serving_schema import SCHEMA, ServingSchema
from elasticctr.publish.sparse import Chunk
from elasticctr.publish.writer import VersionWriter
from elasticctr.table import Table
from elasticctr.train.checkpoint import best_checkpoint, list_checkpoints, open_checkpoint
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import open_dataset
from elasticctr.train.run_directory import RunDirectory

TOLERANCE = 1e-6
SAMPLE_COUNT = 48
KindChoice = Literal["auto", "base", "delta"]


@dataclass(frozen=True, slots=True)
class _AllRows:
    table: Table

    @property
    def estimate(self) -> int:
        return len(self.table)

    def read(self, buckets: tuple[int, int]) -> Iterator[Chunk]:
        for rows in self.table.rows(buckets=buckets):
            yield rows.feasigns, rows.weights


class Publisher:
    """Publishes one model into one repository."""

    def __init__(self, repository: Repository | str, model: str, *, encoding: Encoding = "fp32") -> None:
        self.repository = Repository(repository) if isinstance(repository, str) else repository
        self.model = check_name(model, "model")
        self._encoding = encoding

    def publish(
        self, learner: Learner, samples: Schema, *, batch: Batch, metrics: dict[str, Any], run: dict[str, Any]
    ) -> Manifest:
        for table in learner.sparse.tables:
            check_name(table.settings.name, "table")
        schema = dense.make_serving_schema(learner, samples)
        graph = dense.make_onnx(learner)
        trainer_scores = dense.score_batch(learner, batch)
        scores = trainer_scores if self._encoding == "fp32" else self._encoded_scores(learner, schema, batch)
        self._check(graph, schema, learner, batch, scores)
        writer = VersionWriter(self.repository, self.model, self._next_version())
        writer.add_file(SCHEMA, json.dumps(schema.model_dump(mode="json"), indent=1).encode() + b"\n")
        writer.add_file("dense/model.onnx", graph)
        for table in learner.sparse.tables:
            segments = tuple(Segment(name=s.name, dim=s.dim) for s in table.settings.segments)
            writer.add_table(
                table.settings.name, segments, self._encoding, _AllRows(table), np.zeros(0, dtype=np.uint64)
            )
        writer.add_file("metrics.json", json.dumps(_finite(metrics), indent=1).encode() + b"\n")
        writer.add_file(SAMPLES, format_samples(batch, scores, trainer_scores))
        manifest = writer.commit("base", None, run)
        writer.announce(manifest)
        return manifest

    def _next_version(self) -> int:
        announced = [event.version for event in self.repository.events(self.model)]
        there = [int(name[:-1]) for name in self.repository.store.list(self.model) if name[:-1].isdigit()]
        return max([0, *announced, *there]) + 1

    def _rows(self, learner: Learner, table: str, feasigns: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Rows as a reader of the version will decode them."""
        weights = next(t for t in learner.sparse.tables if t.settings.name == table).get(feasigns).weights
        return decode_rows(encode_rows(weights, self._encoding), self._encoding)

    def _encoded_scores(self, learner: Learner, schema: ServingSchema, batch: Batch) -> NDArray[np.float32]:
        return dense.score_inputs(learner, make_inputs(schema, batch, lambda t, f: self._rows(learner, t, f)))

    def _check(
        self, graph: bytes, schema: ServingSchema, learner: Learner, batch: Batch, scores: NDArray[np.float32]
    ) -> None:
        """The graph and the schema must give what the trainer gives, before anybody sees them."""
        inputs = make_inputs(schema, batch, lambda t, f: self._rows(learner, t, f))
        worst = float(np.abs(DenseGraph(graph, "dense/model.onnx").scores(inputs) - scores).max(initial=0.0))
        if not worst <= TOLERANCE:
            raise InternalError(
                f"model {self.model!r}: the exported graph scores {worst:.3g} away from the trainer's; "
                "nothing was published"
            )


def publish_run(
    run: str | Path,
    to: str,
    *,
    model: str | None = None,
    checkpoint: str = "best",
    encoding: Encoding = "fp32",
) -> Manifest:
    """Publishes a checkpoint of a run directory."""
    directory = RunDirectory(run)
    job = directory.load_job()
    chosen = _choose(directory.path, checkpoint)
    learner = Learner(job)
    learner.load(chosen)
    publisher = Publisher(to, model or directory.path.resolve().name, encoding=encoding)
    metrics = {"valid": chosen.trainer.get("valid"), "run": _read_metrics(directory)}
    return publisher.publish(
        learner,
        job.samples,
        batch=take_samples(job, learner),
        metrics=metrics,
        run={"directory": str(directory.path), "step": chosen.step, "samples": chosen.trainer.get("samples")},
    )


def _choose(run: Path, checkpoint: str) -> Any:
    if checkpoint == "best":
        return best_checkpoint(run) or open_checkpoint(run)
    if checkpoint == "last":
        return open_checkpoint(run)
    steps = [int(path.name.removeprefix("step-")) for path in list_checkpoints(run / "checkpoints")]
    if not checkpoint.isdigit() or int(checkpoint) not in steps:
        known = ", ".join(str(step) for step in steps) or "none"
        raise NotFound(f"{run}: no checkpoint {checkpoint!r}; give best, last or a step: {known}")
    return open_checkpoint(run / "checkpoints" / f"step-{int(checkpoint):012d}")


def _read_metrics(directory: RunDirectory) -> Any:
    try:
        return json.loads(directory.metrics.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def take_samples(job: Job, learner: Learner) -> Batch:
    """A few dozen samples: real ones where the job's data can be read, else made up from the tables' rows; and among
    them one without any value and one of feasigns nobody has seen."""
    real = _real_samples(job)
    made = _made_samples(job.samples, learner, 2 if real is not None else SAMPLE_COUNT)
    return made if real is None else Batch.concat([real, made])


def _real_samples(job: Job) -> Batch | None:
    for settings in (job.data.valid, job.data.test, job.data.train):
        if settings is None:
            continue
        try:
            plain = settings.model_copy(update={"shuffle_rows": 0, "prefetch": 0, "cache": None, "wait_s": 0.0})
            batches = open_dataset(plain, job.samples, require_label=False).iterate(batch_size=SAMPLE_COUNT)
            try:
                return next(iter(batches), None)
            finally:
                batches.close()
        except ElasticCTRError:
            continue
    return None


def _made_samples(schema: Schema, learner: Learner, count: int) -> Batch:
    random = np.random.default_rng(0)
    known = {p.slot.name: _some_feasigns(p.table) for p in learner.sparse.places}
    slots = []
    for slot in schema.sparse:
        rows: list[list[int]] = [[], random.integers(0, 1 << 64, 2, dtype=np.uint64).tolist()]
        for _ in range(count - 2):
            rows.append(
                random.choice(known[slot.name], random.integers(0, 4)).tolist() if len(known[slot.name]) else []
            )
        slots.append([row[: slot.max_values] for row in rows])
    return make_batch(schema, slots, random.random((count, schema.dense_dim), dtype=np.float32).tolist())


def _some_feasigns(table: Table) -> NDArray[np.uint64]:
    first: Iterable[Any] = table.rows(limit=1000)
    return next((rows.feasigns for rows in first), np.zeros(0, dtype=np.uint64))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
