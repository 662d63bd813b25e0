"""Versions made by hand: a schema with every kind of slot, random rows as cube files, and a graph that looks at every
input. No torch, no training; versions/scoring.py gives the expected scores."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.serve.activation.served_version import LocalRows
from elasticctr.versions.encoding import decode_rows, encode_rows, row_bytes
from elasticctr.versions.manifest import Encoding
from elasticctr.versions.samples import make_batch
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import ServingSchema

DIMS = {"main": 5, "ads": 4}
SLOTS: list[dict[str, Any]] = [
    {"name": "user", "values": "string"},
    {"name": "tags", "pooling": "mean", "max_values": 5},
    {"name": "unused"},
    {"name": "ad", "table": "ads"},
    {"name": "clicked", "table": "ads", "pooling": "none", "max_values": 3},
    {"kind": "dense", "name": "x", "dim": 2},
    {"kind": "dense", "name": "count", "transform": "log1p"},
    {"kind": "dense", "name": "price", "transform": "scale", "min": [1.0], "diff": [4.0]},
]
POOLED_WIDTH = 1 + 4 + 1 + 4 + 4


def make_schema(labels: tuple[str, ...] = ("click",), slots: list[dict[str, Any]] | None = None) -> ServingSchema:
    def pooled(slot: str, number: int, table: str, pooling: str, pieces: list[tuple[int, int, int]]) -> dict[str, Any]:
        return {
            "slot": slot, "number": number, "table": table, "pooling": pooling, "max_values": 1024,
            "pieces": [{"segment": "s", "row": row, "dim": dim, "column": column} for row, dim, column in pieces],
        }  # fmt: skip

    return ServingSchema.model_validate(
        {
            "network": "made", "fingerprint": "", "feature_hash": {"seed": 0}, "labels": labels,
            "samples": {"slots": slots or SLOTS, "label": labels, "format": "slot"},
            "pooled_width": POOLED_WIDTH, "dense_width": 4,
            "pooled": [
                pooled("user", 0, "main", "sum", [(0, 1, 0), (1, 4, 2)]),
                pooled("tags", 1, "main", "mean", [(0, 1, 1), (1, 4, 6)]),
                pooled("ad", 3, "ads", "sum", [(0, 4, 10)]),
            ],
            "sequences": [
                {"slot": "clicked", "number": 4, "table": "ads", "input": "sequence_clicked",
                 "lengths": "lengths_clicked", "row": 1, "dim": 3, "max_values": 3},
            ],
            "dense": [
                {"slot": "x", "column": 0, "dim": 2}, {"slot": "count", "column": 2, "dim": 1},
                {"slot": "price", "column": 3, "dim": 1},
            ],
            "tables": {name: {"dim": dim} for name, dim in DIMS.items()},
        }
    )  # fmt: skip


def make_graph(labels: int = 1, seed: int = 3) -> bytes:
    """scores = sigmoid(all inputs side by side, times random weights); [n] for one label, else [n, labels]."""
    width = POOLED_WIDTH + 4 + 9 + 1
    weights = np.random.default_rng(seed).normal(size=(width, labels)).astype(np.float32)
    shapes: list[tuple[str, int, list[Any]]] = [
        ("pooled", TensorProto.FLOAT, ["n", POOLED_WIDTH]),
        ("dense", TensorProto.FLOAT, ["n", 4]),
        ("sequence_clicked", TensorProto.FLOAT, ["n", 3, 3]),
        ("lengths_clicked", TensorProto.INT64, ["n"]),
    ]
    nodes = [
        helper.make_node("Flatten", ["sequence_clicked"], ["sequence"], axis=1),
        helper.make_node("Cast", ["lengths_clicked"], ["lengths_float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["lengths_float", "one"], ["lengths"]),
        helper.make_node("Concat", ["pooled", "dense", "sequence", "lengths"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "weights"], ["wide"]),
        helper.make_node("Squeeze", ["wide", "one"], ["logits"])
        if labels == 1
        else helper.make_node("Identity", ["wide"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
    ]
    out: list[Any] = ["n"] if labels == 1 else ["n", labels]
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(*shape) for shape in shapes],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, out) for name in ("logits", "scores")],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([1]), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@dataclass
class Made:
    """Random rows of both tables as cube files, below a folder per shard as servers want them."""

    folder: Path
    encoding: Encoding = "fp32"
    shards: int = 1
    version: int = 7
    seed: int = 1
    feasigns: NDArray[np.uint64] = field(init=False)
    rows: dict[str, NDArray[np.float32]] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self.feasigns = np.unique(random.integers(0, 1 << 64, 400, dtype=np.uint64))
        self.rows = {}
        files: list[list[dict[str, Any]]] = [[] for _ in range(self.shards)]
        for table, dim in DIMS.items():
            rows = random.normal(size=(len(self.feasigns), dim)).astype(np.float32)
            encoded = encode_rows(rows, self.encoding)
            self.rows[table] = decode_rows(encoded, self.encoding)
            paths = [self.data(shard) / "ctr" / str(self.version) / f"{table}.cube" for shard in range(self.shards)]
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
            builder = _native.CubeBuilder(
                f"ctr/{table}", "base", self.encoding, dim, row_bytes(self.encoding, dim), "buckets", self.shards,
                self.version, 0, str(self.folder), 1 << 24,
            )  # fmt: skip
            builder.add(self.feasigns, encoded)
            builder.finish([str(path) for path in paths])
            for shard, path in enumerate(paths):
                body = path.read_bytes()
                digest = hashlib.sha256(body).hexdigest()
                entry = {"table": table, "name": path.name, "bytes": len(body), "sha256": digest, "rows": 1}
                files[shard].append(entry)
        for shard in range(self.shards):
            described = {"format": 1, "model": "ctr", "version": self.version, "kind": "base", "parent": 0}
            described |= {"shard": shard, "shards": self.shards, "sharding": "buckets", "files": files[shard]}
            (self.data(shard) / "ctr" / str(self.version) / "shard.json").write_text(json.dumps(described))

    def data(self, shard: int) -> Path:
        return self.folder / f"data-{shard}"

    def stores(self) -> list[_native.CubeStore]:
        stores = []
        for shard in range(self.shards):
            store = _native.CubeStore.make("mapped", True)
            folder = self.data(shard) / "ctr" / str(self.version)
            files = [(table, str(folder / f"{table}.cube")) for table in DIMS]
            store.load("ctr", self.version, 0, files, shard, self.shards)
            stores.append(store)
        return stores

    def local(self) -> LocalRows:
        return LocalRows(self.stores(), "ctr")

    def look_up(self, table: str, feasigns: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        place = np.searchsorted(self.feasigns, feasigns) % len(self.feasigns)
        found = self.feasigns[place] == feasigns
        return np.where(found[:, None], self.rows[table][place], np.float32(0)), found

    def samples(self, schema: ServingSchema, count: int, seed: int = 5) -> Batch:
        """Values from the files, others, and repeated ones; any number of them, or none."""
        random = np.random.default_rng(seed)
        strange = random.integers(0, 1 << 64, 60, dtype=np.uint64)
        pool = np.concatenate([self.feasigns, strange])
        most = {slot.name: min(slot.max_values, 6) for slot in schema.samples.sparse}
        slots = [
            [random.choice(pool, random.integers(0, most[slot.name] + 1)).tolist() for _ in range(count)]
            for slot in schema.samples.sparse
        ]
        return make_batch(schema.samples, slots, random.normal(size=(count, schema.samples.dense_dim)).tolist())

    def expected(self, schema: ServingSchema, graph: bytes, batch: Batch) -> NDArray[np.float32]:
        return DenseGraph(graph, "graph").scores(make_inputs(schema, batch, self.look_up))
