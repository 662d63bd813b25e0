"""Logged requests replayed: the same bytes on another path give the same features, and a changed log is noticed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.scored import make_graph
from tests.cluster.truth import _Rows
from typer.testing import CliRunner

from elasticctr import _native
from elasticctr.cli.app import app
from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import Schema
from elasticctr.errors import NotFound
from elasticctr.serve.feedback.replay import Replay, Replayer
from elasticctr.versions import Repository
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import Segment
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA, parse_serving_schema
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.verification import GRAPH
from elasticctr.versions.writer import VersionWriter

SLOTS = [
    {"name": "user", "values": "string"},
    {"name": "tags", "pooling": "mean", "max_values": 3},
    {"name": "ad", "values": "string"},
    {"kind": "dense", "name": "x", "dim": 2, "transform": "log1p"},
    {"kind": "dense", "name": "y"},
]
# The same three samples in every protocol: user, tags, ad, x, y.
ROWS = [
    ("ann", [7, 2**64 - 1], "shoe", [1.5, 0.0], 0.25),
    ("ann", [], "hat", [20.0, 3.0], -4.0),
    ("ann", [1, 2, 3, 4], "shoe", [0.5, 0.125], 1.0),
]
LINES = [
    f"user:{user} " + "".join(f"tags:{t} " for t in tags) + f"ad:{ad} x:{x[0]} x:{x[1]} y:{y}"
    for user, tags, ad, x, y in ROWS
]


class Served:
    """A version made by hand, and the log that a correct server would have written."""

    def __init__(self, place: Path) -> None:
        self.repo = place / "repo"
        repository = Repository(str(self.repo))
        samples = Schema.model_validate({"slots": SLOTS})
        self.batch = Parser(samples, threads=1, require_label=False).parse("\n".join(LINES).encode()).batch
        self._publish(repository, samples)
        chain = repository.chain("ctr", 1)
        schema = parse_serving_schema(repository.read_file("ctr", 1, SCHEMA), "schema")
        inputs = make_inputs(schema, self.batch, lambda table, f: get_rows(repository, chain, table, f))
        self.scores = DenseGraph(repository.read_file("ctr", 1, GRAPH), "graph").scores(inputs)
        self.slots = [slot.name for slot in schema.samples.sparse]

    def _publish(self, repository: Repository, samples: Schema) -> None:
        """Rows of two floats for most of the feasigns; scores add up everything the graph is given."""
        pooled = [
            {"slot": slot.name, "number": i, "table": "main", "pooling": slot.pooling, "max_values": slot.max_values,
             "pieces": [{"segment": "embedding", "row": 0, "dim": 2, "column": 2 * i}]}
            for i, slot in enumerate(samples.sparse)
        ]  # fmt: skip
        schema = {
            "network": "made", "fingerprint": "made", "feature_hash": {"seed": 0}, "labels": ["click"],
            "samples": samples.model_dump(mode="json"), "pooled_width": 6, "dense_width": 3, "pooled": pooled,
            "sequences": [], "dense": [{"slot": "x", "column": 0, "dim": 2}, {"slot": "y", "column": 2, "dim": 1}],
            "tables": {"main": {"dim": 2}},
        }  # fmt: skip
        feasigns = np.unique(self.batch.values)[1:]
        rows = np.random.default_rng(3).normal(size=(len(feasigns), 2)).astype(np.float32)
        with PublisherLease(repository.store, "ctr") as lease:
            writer = VersionWriter(repository, "ctr", 1, lease)
            writer.add_file(SCHEMA, json.dumps(schema).encode())
            writer.add_file(GRAPH, make_graph(0.1, pooled=6, dense=3))
            segments = (Segment(name="embedding", dim=2),)
            writer.add_table("main", segments, "fp32", _Rows(feasigns, rows), np.zeros(0, np.uint64))
            writer.announce(writer.commit("base", None, {}))

    def write(
        self, log: Path, request_id: str, protocol: str, body: bytes, *, version: int = 1, binary: int = 0, **wrong: Any
    ) -> None:
        rows: list[list[tuple[int, list[int]]]] = [[(0, self.batch.slot(0)[0][:1].tolist())]]
        for i in range(3):
            bags = [(n, self._bag(n, i)) for n in (1, 2)]
            rows.append([(n, bag) for n, bag in bags if bag])
        if "values" in wrong:
            rows[2] = [(2, wrong["values"])]
        native = _native.RequestLog(str(log))
        dense = self.batch.dense.tolist()
        scores = (self.scores + wrong.get("apart", 0.0)).tolist()
        shape = [("x", 2), ("y", 1)]
        native.add(1.0, request_id, "ctr", version, "live", protocol, body, self.slots, shape, rows, dense, scores)
        native.stop()
        if binary:
            for path in log.iterdir():
                path.write_bytes(
                    path.read_bytes().replace(b'"request_bytes"', b'"binary_header":%d,"request_bytes"' % binary)
                )

    def _bag(self, slot: int, sample: int) -> list[int]:
        values, offsets = self.batch.slot(slot)
        return values[offsets[sample] : offsets[sample + 1]].tolist()

    def replay(self, log: Path) -> Replay:
        return Replayer(Repository(str(self.repo))).run([log])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(tmp_path_factory.mktemp("served"))


def by_slot(user: bool = True) -> list[dict[str, Any]]:
    return [({"user": u} if user else {}) | {"tags": t, "ad": a, "x": x, "y": y} for u, t, a, x, y in ROWS]


def tensors() -> dict[str, Any]:
    tags = [t for _, row, *_ in ROWS for t in row]
    return {
        "inputs": [
            {"name": "user", "datatype": "BYTES", "shape": [1, 1], "data": ["ann"]},
            {"name": "tags", "datatype": "UINT64", "shape": [6], "data": tags},
            {"name": "tags.lengths", "datatype": "INT32", "shape": [3], "data": [len(t) for _, t, *_ in ROWS]},
            {"name": "ad", "datatype": "BYTES", "shape": [3], "data": [ad for _, _, ad, *_ in ROWS]},
            {"name": "x", "datatype": "FP64", "shape": [3, 2], "data": [x for *_, x, _ in ROWS]},
            {"name": "y", "datatype": "FP32", "shape": [3, 1], "data": [[y] for *_, y in ROWS]},
        ]
    }


def final(served: Served) -> list[dict[str, Any]]:
    """Feasigns and floats after transforms."""
    return [
        {name: served._bag(n, i) for n, name in enumerate(served.slots)}
        | {"x": served.batch.dense[i, :2].tolist(), "y": served.batch.dense[i, 2:].tolist()}
        for i in range(3)
    ]


def bodies(served: Served) -> dict[str, tuple[str, dict[str, Any]]]:
    feeds = {name: [sample[name] for sample in final(served)] for name in served.slots}
    feeds["dense_input"] = [sample["x"] + sample["y"] for sample in final(served)]
    pairs = {"key": list(feeds), "value": [json.dumps(feed) for feed in feeds.values()]}
    return {
        "samples": ("json", {"samples": by_slot()}),
        "user and candidates": ("json", {"user": {"user": "ann", "y": 9}, "candidates": by_slot(False)}),
        "lines": ("json", {"lines": [line + "\n" for line in LINES], "format": "slot"}),
        "lines of the schema": ("json", {"lines": LINES}),
        "feasigns": ("json", {"samples": final(served), "values": "feasigns"}),
        "kserve": ("kserve", tensors()),
        "kserve lines": (
            "kserve",
            {"inputs": [{"name": "lines", "datatype": "BYTES", "shape": [3], "data": LINES}]},
        ),
        "paddle feed": ("paddle", {"feed": [feeds], "fetch": ["prob"]}),
        "paddle pairs": ("paddle", pairs),
    }


def test_each_way_to_ask(served: Served, tmp_path: Path) -> None:
    for name, (protocol, body) in bodies(served).items():
        served.write(tmp_path, name, protocol, json.dumps(body).encode())
    result = served.replay(tmp_path)
    assert result.first_difference is None
    assert result.unreadable_reason == ""
    assert (result.requests, result.from_request, result.from_feasigns, result.samples) == (9, 9, 0, 27)
    assert result.worst < 1e-6
    assert result.is_same


def test_binary_tensors(served: Served, tmp_path: Path) -> None:
    texts = [row[2].encode() for row in ROWS]
    tags = [t for _, row, *_ in ROWS for t in row]
    parts = {
        "user": struct.pack("<I", 3) + b"ann",
        "tags": np.array(tags, "<u8").tobytes(),
        "tags.lengths": np.array([2, 0, 4], "<i4").tobytes(),
        "ad": b"".join(struct.pack("<I", len(t)) + t for t in texts),
        "x": np.array([x for *_, x, _ in ROWS], "<f8").tobytes(),
        "y": np.array([y for *_, y in ROWS], "<f4").tobytes(),
    }
    entry = tensors()
    for tensor in entry["inputs"]:
        tensor.pop("data")
        tensor["parameters"] = {"binary_data_size": len(parts[tensor["name"]])}
    head = json.dumps(entry).encode()
    served.write(tmp_path, "b", "kserve", head + b"".join(parts.values()), binary=len(head))
    result = served.replay(tmp_path)
    assert result.is_same
    assert result.from_request == 1


def test_what_cannot_be_read_again_is_scored_from_feasigns(served: Served, tmp_path: Path) -> None:
    served.write(tmp_path, "a", "unheard-of", b"\x00\xff")
    result = served.replay(tmp_path)
    assert (result.from_request, result.from_feasigns, result.is_same) == (0, 1, True)
    served.write(tmp_path, "b", "unheard-of", b"\x00\xff", apart=0.01)
    assert served.replay(tmp_path).worst_id == "b"


def test_differences_are_found(served: Served, tmp_path: Path) -> None:
    body = json.dumps({"samples": by_slot()}).encode()
    served.write(tmp_path / "scores", "s", "json", body, apart=1e-3)
    result = served.replay(tmp_path / "scores")
    assert not result.is_same
    assert result.worst == pytest.approx(1e-3, rel=1e-3)
    assert result.first_difference is None
    served.write(tmp_path / "values", "ok", "json", body)
    served.write(tmp_path / "values", "v", "json", body, values=[5])
    result = served.replay(tmp_path / "values")
    first = result.first_difference
    assert first is not None
    assert (first.id, first.sample, first.slot, first.logged) == ("v", 1, "ad", [5])
    assert first.made == served._bag(2, 1)
    assert result.different_requests == 1
    served.write(tmp_path / "lines", "l", "json", json.dumps({"lines": ["ad:x tags:minus"] * 3}).encode())
    result = served.replay(tmp_path / "lines")
    assert "minus" in result.unreadable_reason
    assert not result.is_same


def test_command(served: Served, tmp_path: Path) -> None:
    body = json.dumps({"samples": by_slot()}).encode()
    served.write(tmp_path / "log", "a", "json", body)
    served.write(tmp_path / "log", "gone", "json", body, version=9)
    run = CliRunner()
    good = run.invoke(app, ["feedback", "replay", str(tmp_path / "log"), "--repo", str(served.repo), "--json"])
    assert good.exit_code == 0, good.output
    found = json.loads(good.output)
    assert found["same"]
    assert found["missing_versions"] == {"ctr/9": 1}
    served.write(tmp_path / "log", "v", "json", body, values=[5])
    bad = run.invoke(app, ["feedback", "replay", str(tmp_path / "log"), "--repo", str(served.repo)])
    assert bad.exit_code == 14
    assert "slot 'ad'" in bad.output
    for wrong in (["feedback", "replay"], ["feedback", "replay", "x"], ["feedback", "replay", "--repo", "z"]):
        assert run.invoke(app, wrong).exit_code == 2
    served.write(tmp_path / "old", "gone", "json", body, version=9)
    with pytest.raises(NotFound, match="ctr/9"):
        served.replay(tmp_path / "old")
