"""Versions whose every score is known: rows as truth.py has them, and a small graph that adds the version to it.

    scored = Scored(Repository("/srv/models"))
    scored.publish(scored.define())
    scored.expected(version, samples)

An answer is held against the version it names: rows of another version, or another version's graph, give another score.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import MANIFEST, Manifest, Segment, parse_manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.rollback import rollback
from elasticctr.versions.samples import format_samples, make_batch
from elasticctr.versions.serving_schema import parse_serving_schema
from elasticctr.versions.writer import VersionWriter
from tests.cluster.truth import Truth, _Rows

TABLE, DIM = "embedding", 3
SAMPLES = 24
TOLERANCE = 2e-5  # served scores are float32, these are float64
Change = Callable[[dict[str, bytes]], None]


@dataclass(frozen=True, slots=True)
class Sample:
    user: int
    ads: tuple[int, ...]
    x: tuple[float, float]

    def json(self) -> dict[str, Any]:
        return {"user": str(self.user), "ads": [str(ad) for ad in self.ads], "x": list(self.x)}


class Scored:
    def __init__(self, repository: Repository, model: str = "ctr", count: int = 4000, seed: int = 0) -> None:
        self.repository, self.model, self.seed = repository, model, seed
        self.truth = Truth(count, seed)
        self._places = {int(f): i for i, f in enumerate(self.truth.feasigns)}

    def define(self, parent: int = 0, version: int | None = None) -> int:
        return self.truth.define(version or self.truth.newest + 1, parent)

    def base(self) -> int:
        return self.publish(self.define())

    def delta(self, parent: int | None = None) -> int:
        return self.publish(self.define(parent or self.truth.newest))

    def rollback(self, version: int) -> None:
        rollback(self.repository, self.model, version)

    def publish(self, version: int, change: Change = lambda files: None, *, is_announced: bool = True) -> int:
        """`change` may do harm to the small files before they are written and listed."""
        truth, parent = self.truth, self.truth.parents[version]
        written, gone = truth.changes(version)
        rows = _Rows(truth.feasigns[written], self.rows(truth.feasigns[written], truth.writers[version][written]))
        files = {
            "schema.json": json.dumps(make_schema()).encode(),
            "dense/model.onnx": make_graph(_bias(version, self.seed)),
            "samples.json": self._samples(version),
        }
        change(files)
        above = self._manifest(parent) if parent else None
        with PublisherLease(self.repository.store, self.model) as lease:
            writer = VersionWriter(self.repository, self.model, version, lease)
            for name, data in files.items():
                writer.add_file(name, data)
            writer.add_table(TABLE, (Segment(name="embedding", dim=DIM),), "fp32", rows, truth.feasigns[gone])
            manifest = writer.commit("delta" if parent else "base", above, {})
            if is_announced:
                writer.announce(manifest)
        return version

    def draw(self, random: np.random.Generator, count: int = 1) -> list[Sample]:
        """Samples of feasigns that some versions have a row for and others do not."""
        places = random.integers(0, len(self.truth.feasigns), (count, 4))
        return [
            Sample(
                int(self.truth.feasigns[row[0]]),
                tuple(int(f) for f in self.truth.feasigns[row[1 : 1 + int(random.integers(0, 4))]]),
                (float(np.float32(random.normal())), float(np.float32(random.normal()))),
            )
            for row in places
        ]

    def expected(self, version: int, samples: Sequence[Sample]) -> NDArray[np.float64]:
        """The scores of samples, in float64."""
        writers = self.truth.writers[version]

        def row(feasign: int) -> NDArray[np.float64]:
            place = self._places.get(feasign)
            if place is None or writers[place] == 0:
                return np.zeros(DIM)
            found = self.rows(np.array([feasign], np.uint64), writers[[place]])[0]
            return found.astype(np.float64)

        logits = []
        for sample in samples:
            ads = np.mean([row(ad) for ad in sample.ads], axis=0) if sample.ads else np.zeros(DIM)
            logits.append(row(sample.user).sum() + ads.sum() + 0.1 * sum(sample.x) + _bias(version, self.seed))
        return 1 / (1 + np.exp(-np.array(logits)))

    def is_right(self, version: int, samples: Sequence[Sample], scores: Sequence[float]) -> bool:
        if version not in self.truth.writers or len(scores) != len(samples):
            return False
        return bool(np.abs(self.expected(version, samples) - np.array(scores)).max() < TOLERANCE)

    def rows(self, feasigns: NDArray[np.uint64], writers: NDArray[np.int32]) -> NDArray[np.float32]:
        """A function of the feasign and of who wrote the row."""
        values = (feasigns % np.uint64(97)).astype(np.float64) / 97 - 0.5
        mark = (writers.astype(np.float64) * 53 + self.seed * 7) % 97 / 97
        return np.stack([values, mark - 0.5, values * mark], axis=1).astype(np.float32)

    def _samples(self, version: int) -> bytes:
        samples = self.draw(np.random.default_rng(version), SAMPLES)
        schema = parse_serving_schema(json.dumps(make_schema()).encode(), "schema").samples
        slots = [[[s.user] for s in samples], [list(s.ads) for s in samples]]
        scores = self.expected(version, samples).astype(np.float32)[:, None]
        return format_samples(make_batch(schema, slots, [list(s.x) for s in samples]), scores, scores)

    def _manifest(self, version: int) -> Manifest:
        name = f"{self.model}/{version}/{MANIFEST}"
        return parse_manifest(self.repository.store.read_bytes(name), name)


def _bias(version: int, seed: int) -> float:
    return (version * 37 + seed * 11) % 101 / 50 - 1


def make_schema() -> dict[str, Any]:
    def piece(column: int) -> list[dict[str, Any]]:
        return [{"segment": "embedding", "row": 0, "dim": DIM, "column": column}]

    slots = [
        {"kind": "sparse", "name": "user", "values": "id", "table": TABLE},
        {"kind": "sparse", "name": "ads", "values": "id", "table": TABLE, "pooling": "mean"},
        {"kind": "dense", "name": "x", "dim": 2},
    ]
    common = {"table": TABLE, "max_values": 1024}
    return {
        "format": 1, "network": "made", "fingerprint": "made", "feature_hash": {"name": "xxh64", "seed": 0},
        "samples": {"format": "slot", "label": ["click"], "slots": slots},
        "labels": ["click"], "pooled_width": 2 * DIM, "dense_width": 2,
        "pooled": [
            {"slot": "user", "number": 0, "pooling": "sum", "pieces": piece(0), **common},
            {"slot": "ads", "number": 1, "pooling": "mean", "pieces": piece(DIM), **common},
        ],
        "sequences": [], "dense": [{"slot": "x", "column": 0, "dim": 2}],
        "tables": {TABLE: {"dim": DIM, "missing": "zeros"}},
    }  # fmt: skip


def make_graph(bias: float, pooled: int = 2 * DIM, dense: int = 2) -> bytes:
    """scores = sigmoid(sum of pooled + 0.1 · sum of dense + bias)"""

    def constant(name: str, value: NDArray[Any]) -> Any:
        return onnx.numpy_helper.from_array(value, name)

    nodes = [
        helper.make_node("MatMul", ["pooled", "ones"], ["a"]),
        helper.make_node("MatMul", ["dense", "tenths"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Add", ["c", "bias"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [
            helper.make_tensor_value_info("pooled", TensorProto.FLOAT, ["n", pooled]),
            helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["n", dense]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("logits", "scores")],
        [
            constant("ones", np.ones((pooled, 1), np.float32)),
            constant("tenths", np.full((dense, 1), 0.1, np.float32)),
            constant("bias", np.array([bias], np.float32)),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())
