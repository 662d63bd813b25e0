"""The model, rows and requests of benchmarks/predict.py, made once and kept.

PaddleRec's Wide & Deep on Criteo's slots: 26 sparse ones, 13 dense floats, embeddings of 9 beside a wide weight, a
tower of 512, 256, 128 and 32; a million rows. Weights are random: only scores depend on them. A request gives the
user's 16 slots and 13 dense floats once and 10 slots for each candidate; values are text, as in a log, drawn evenly.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.versions import Repository, Segment
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.samples import SAMPLES, format_samples, make_batch
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA, ServingSchema
from elasticctr.versions.verification import GRAPH
from elasticctr.versions.writer import VersionWriter
from measure import WORK

FOLDER = WORK / "predict"
MODEL = "ctr"
SIZES = (1, 10, 100, 500)
SPARSE = [f"C{i}" for i in range(1, 27)]
DENSE = [f"I{i}" for i in range(1, 14)]
USER, ITEM = SPARSE[:16], SPARSE[16:]
VALUES_PER_SLOT = 38_462  # a million in all
FORMAT = 1  # change it to make everything again


def value_text(slot: int, i: int) -> str:
    """The i-th value of a slot: 8 hex digits, different for different i."""
    return f"{(i * 2_654_435_761 + slot * 40_503) & 0xFFFFFFFF:08x}"


@dataclass(frozen=True)
class Rows:
    """Rows of all values of all slots, in that order."""

    feasigns: NDArray[np.uint64]
    weights: NDArray[np.float32]

    @property
    def estimate(self) -> int:
        return len(self.feasigns)

    def read(self, buckets: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        if buckets == (0, _native.BUCKETS):
            yield self.feasigns, self.weights
            return
        inside = [i for i, f in enumerate(self.feasigns.tolist()) if buckets[0] <= _native.bucket_of(f) < buckets[1]]
        yield self.feasigns[inside], self.weights[inside]


def make_rows(dim: int) -> Rows:
    feasigns = np.array(
        [
            _native.feature_hash(name, value_text(slot, i).encode())
            for slot, name in enumerate(SPARSE)
            for i in range(VALUES_PER_SLOT)
        ],
        dtype=np.uint64,
    )
    weights = np.random.default_rng(1).normal(0, 0.1, (len(feasigns), dim)).astype(np.float32)
    return Rows(feasigns, weights)


def make_requests(size: int, count: int, seed: int = 0) -> list[dict[str, Any]]:
    random = np.random.default_rng([size, seed])
    made = []
    for _ in range(count):
        user: dict[str, Any] = {
            name: value_text(slot, int(i))
            for slot, (name, i) in enumerate(zip(USER, random.integers(0, VALUES_PER_SLOT, len(USER)), strict=True))
        }
        user |= {name: int(x) for name, x in zip(DENSE, random.integers(0, 500, len(DENSE)), strict=True)}
        chosen = random.integers(0, VALUES_PER_SLOT, (size, len(ITEM)))
        candidates = [
            {name: value_text(len(USER) + k, int(i)) for k, (name, i) in enumerate(zip(ITEM, row, strict=True))}
            for row in chosen
        ]
        made.append({"user": user, "candidates": candidates})
    return made


def prepare() -> None:
    """Makes the version, the peers' layout and the bodies, unless they exist."""
    stamp = FOLDER / "made"
    if stamp.exists() and stamp.read_text() == str(FORMAT):
        return
    shutil.rmtree(FOLDER / "repo", ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"making a version of {len(SPARSE) * VALUES_PER_SLOT:,} rows in {FOLDER} …", flush=True)
    schema, segments, graph = _make_model()
    rows = make_rows(sum(segment.dim for segment in segments))
    np.save(FOLDER / "feasigns.npy", rows.feasigns)
    np.save(FOLDER / "weights.npy", rows.weights)
    (FOLDER / "model.onnx").write_bytes(graph)
    (FOLDER / SCHEMA).write_text(schema.model_dump_json())
    batch = _to_batch(schema, make_requests(8, 4, seed=9))
    scores = DenseGraph(graph, "graph").scores(make_inputs(schema, batch, _source(rows)))
    repository = Repository(str(FOLDER / "repo"))
    with PublisherLease(repository.store, MODEL) as lease:
        writer = VersionWriter(repository, MODEL, 1, lease)
        writer.add_file(SCHEMA, schema.model_dump_json().encode())
        writer.add_file(GRAPH, graph)
        writer.add_table("main", segments, "fp32", rows, np.zeros(0, dtype=np.uint64))
        writer.add_file("metrics.json", b"{}")
        writer.add_file(SAMPLES, format_samples(batch, scores, scores))
        writer.announce(writer.commit("base", None, {}))
    columns = {}
    for slot in schema.pooled:
        places = {p.row + k: p.column + k for p in slot.pieces for k in range(p.dim)}
        columns[slot.slot] = [places[k] for k in range(rows.weights.shape[1])]
    layout = {"user": USER, "item": ITEM, "dense": DENSE, "dim": rows.weights.shape[1], "columns": columns}
    layout |= {"pooled_width": schema.pooled_width, "onnx": str(FOLDER / "model.onnx")}
    (FOLDER / "peers.json").write_text(json.dumps(layout))
    for size in SIZES:
        lines = [json.dumps(r, separators=(",", ":")) for r in make_requests(size, max(100, 20_000 // size))]
        (FOLDER / f"bodies-{size}.txt").write_text("\n".join(lines) + "\n")
    stamp.write_text(str(FORMAT))


def _make_model() -> tuple[ServingSchema, tuple[Segment, ...], bytes]:
    from elasticctr.publish.dense import make_onnx, make_serving_schema
    from elasticctr.train.job import Job
    from elasticctr.train.learner import Learner

    slots = [{"name": name, "values": "string"} for name in SPARSE]
    dense = [{"name": name, "kind": "dense", "transform": "log1p"} for name in DENSE]
    job = Job.model_validate(
        {
            "run_dir": str(FOLDER / "run"),
            "schema": {"format": "criteo", "slots": [*dense, *slots]},
            "data": {"train": str(FOLDER / "none")},
            "model": {"name": "wide_deep", "dim": 9, "hidden": [512, 256, 128, 32], "wide": "both"},
        }
    )
    learner = Learner(job)
    (table,) = learner.sparse.tables
    segments = tuple(Segment(name=s.name, dim=s.dim) for s in table.settings.segments)
    return make_serving_schema(learner, job.samples), segments, make_onnx(learner)


def _to_batch(schema: ServingSchema, requests: list[dict[str, Any]]) -> Batch:
    samples = [request["user"] | item for request in requests for item in request["candidates"]]
    slots = [[[_native.feature_hash(name, s[name].encode())] for s in samples] for name in SPARSE]
    dense = [[float(np.log1p(np.float32(max(s[name], 0)))) for name in DENSE] for s in samples]
    return make_batch(schema.samples, slots, dense)


def _source(rows: Rows) -> Any:
    order = np.argsort(rows.feasigns)
    ordered = rows.feasigns[order]

    def get(table: str, feasigns: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        at = order[np.searchsorted(ordered, feasigns) % len(ordered)]
        found = rows.feasigns[at] == feasigns
        return np.where(found[:, None], rows.weights[at], np.float32(0)), found

    return get


class Reference:
    """Scores from the version's own files, computed slowly."""

    def __init__(self) -> None:
        self.schema = ServingSchema.model_validate_json((FOLDER / SCHEMA).read_bytes())
        self._source = _source(Rows(np.load(FOLDER / "feasigns.npy"), np.load(FOLDER / "weights.npy")))
        self._graph = DenseGraph((FOLDER / "model.onnx").read_bytes(), "graph")

    def inputs(self, requests: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
        return make_inputs(self.schema, _to_batch(self.schema, requests), self._source)

    def scores(self, request: dict[str, Any]) -> NDArray[np.float32]:
        return self._graph.scores(self.inputs([request]))[:, 0]


def read_bodies(size: int, count: int) -> list[dict[str, Any]]:
    with Path(FOLDER / f"bodies-{size}.txt").open() as file:
        return [json.loads(line) for line, _ in zip(file, range(count), strict=False)]
