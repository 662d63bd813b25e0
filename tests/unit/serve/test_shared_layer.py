"""Shared values go through the first layer once per request, and scores do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.models import registry
from elasticctr.models.export import export_onnx
from elasticctr.models.inputs import InputSpec
from elasticctr.serve.activation.served_version import LocalRows, Served, make_served_version
from elasticctr.serve.activation.verification import check_shared
from elasticctr.serve.settings import VerifySettings
from elasticctr.versions.encoding import encode_rows
from elasticctr.versions.samples import format_samples, make_batch
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import ServingSchema

SLOTS = tuple("abcdef")
DIM = 4
DENSE = 3
FEASIGNS = np.arange(1, 201, dtype=np.uint64)
ROWS = np.random.default_rng(1).normal(scale=0.3, size=(len(FEASIGNS), 1 + DIM)).astype(np.float32)


class Version:
    """A graph of `pooled` (linear weights of all slots, then embeddings) and `dense`, with rows for 200 feasigns."""

    def __init__(self, folder: Path, graph: bytes, dim: int = DIM, linear: bool = False, labels: int = 1) -> None:
        names = [f"label{i}" for i in range(labels)]
        slots: list[dict[str, Any]] = [{"name": name} for name in SLOTS]
        slots += [{"kind": "dense", "name": "x", "dim": DENSE}]
        first = len(SLOTS) if linear else 0
        pooled = []
        for i, name in enumerate(SLOTS):
            pieces = [{"segment": "embedding", "row": 1, "dim": dim, "column": first + i * dim}] if dim else []
            pieces += [{"segment": "linear", "row": 0, "dim": 1, "column": i}] if linear else []
            pooling = "mean" if name == "b" else "sum"
            of = {"slot": name, "number": i, "table": "main", "pooling": pooling, "max_values": 1024, "pieces": pieces}
            pooled.append(of)
        self.schema = ServingSchema.model_validate(
            {
                "network": "made", "fingerprint": "", "feature_hash": {"seed": 0}, "labels": names,
                "samples": {"slots": slots, "label": names, "format": "slot"},
                "pooled_width": first + len(SLOTS) * dim, "dense_width": DENSE, "pooled": pooled,
                "sequences": [], "dense": [{"slot": "x", "column": 0, "dim": DENSE}],
                "tables": {"main": {"dim": 1 + DIM}},
            }
        )  # fmt: skip
        builder = _native.CubeBuilder(
            "ctr/main", "base", "fp32", 1 + DIM, 4 * (1 + DIM), "buckets", 1, 1, 0, str(folder), 1 << 24
        )
        builder.add(FEASIGNS, encode_rows(ROWS, "fp32"))
        builder.finish([str(folder / "main.cube")])
        store = _native.CubeStore.make("mapped", True)
        store.load("ctr", 1, 0, [("main", str(folder / "main.cube"))], 0, 1)
        self.graph = graph
        self.reference = DenseGraph(graph, "graph")
        native = make_served_version("ctr", 1, self.schema, graph, LocalRows([store], "ctr"), None, "graph")
        self.served = Served(native, self.schema)

    def expected(self, batch: Batch) -> np.ndarray[Any, np.dtype[np.float32]]:
        def look_up(_: str, feasigns: Any) -> tuple[Any, Any]:
            found = feasigns <= len(FEASIGNS)
            rows = ROWS[(feasigns.astype(np.int64) - 1) % len(ROWS)]
            return np.where(found[:, None], rows, np.float32(0)), found

        return self.reference.scores(make_inputs(self.schema, batch, look_up))

    def request(
        self, seed: int, count: int, user: str, *, own_dense: int = 0, replaced: str = "", absent: str = ""
    ) -> tuple[Batch, Batch, Batch]:
        """Candidates, what they share, and both together. Some rows are not there, candidates lack slots. The first
        `own_dense` floats differ among candidates; the last one has the slots `replaced` of its own."""
        random = np.random.default_rng([seed, count])

        def draw(fewest: int) -> list[int]:
            return [int(feasign) for feasign in random.integers(1, 220, random.integers(fewest, 4))]

        names = [slot.name for slot in self.schema.samples.sparse]
        shared = [draw(1) if name in user else [] for name in names]
        own = [[[] if name in user + absent else draw(0) for _ in range(count)] for name in names]
        for name in replaced:
            own[names.index(name)][-1] = draw(1)
        floats = random.normal(size=DENSE)
        dense = np.tile(floats, (count, 1))
        dense[:, :own_dense] = random.normal(size=(count, own_dense))
        whole = [[mine or shared[n] for mine in slot] for n, slot in enumerate(own)]
        schema = self.schema.samples
        return (
            make_batch(schema, own, dense.tolist()),
            make_batch(schema, [[values] for values in shared], [floats.tolist()]),
            make_batch(schema, whole, dense.tolist()),
        )

    def check(self, requests: list[tuple[Batch, Batch, Batch]], is_split: bool = True) -> None:
        """All of them in one micro-batch."""
        scored = self.served.score_requests([(own, shared) for own, shared, _ in requests])
        assert [one.is_split for one in scored] == [is_split] * len(requests)
        for one, (_, _, whole) in zip(scored, requests, strict=True):
            expected = self.expected(whole)
            assert one.scores.shape == expected.shape
            assert np.abs(one.scores - expected).max(initial=0) <= 1e-6
        together = np.concatenate([one.scores for one in scored])
        assert np.std(together) > 1e-3, "scores that do not differ prove nothing"


def export(
    folder: Path, name: str, settings: dict[str, Any], optimize: bool = True, **spec: Any
) -> tuple[bytes, int, bool]:
    cls = registry.resolve(name)
    parsed = registry.parse(cls, settings)
    needs = registry.input_needs(cls, parsed)
    made = InputSpec(slots=SLOTS, dims=(needs.dim,) * len(SLOTS), dense_dim=DENSE, linear=needs.linear, **spec)
    model = registry.create(name, made, settings)
    with torch.no_grad():
        random = torch.Generator().manual_seed(5)
        for parameter in model.parameters():  # what starts at zero would hide mistakes
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.1)
    export_onnx(model, folder / "model.onnx", optimize=optimize)
    return (folder / "model.onnx").read_bytes(), needs.dim, needs.linear


TOWER = {"hidden": [67, 8], "dim": DIM}
ZOO = [
    ("wide_deep", {**TOWER, "wide": "both"}, True, 1),
    ("wide_deep", {**TOWER, "wide": "both"}, False, 1),
    ("deepfm", TOWER, True, 1),
    ("deepfm", TOWER, False, 1),
    ("dnn", {**TOWER, "batch_norm": True, "activation": "gelu"}, False, 1),
    ("dcnv2", {**TOWER, "cross_layers": 2, "structure": "parallel"}, True, 1),
    pytest.param("wide_deep", {**TOWER, "wide": "dense"}, True, 2, marks=pytest.mark.slow),
    pytest.param("fm", {"dim": DIM}, True, 1, marks=pytest.mark.slow),
    pytest.param("lr", {}, True, 1, marks=pytest.mark.slow),
    pytest.param("dnn", {**TOWER, "activation": "silu"}, True, 3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "settings", "optimize", "labels"), ZOO)
def test_models_score_as_they_do_whole(
    tmp_path: Path, name: str, settings: dict[str, Any], optimize: bool, labels: int
) -> None:
    version = Version(tmp_path, *export(tmp_path, name, settings, optimize, labels=labels), labels)
    assert version.served.native.why_whole == ""
    version.check([version.request(1, 40, "abc")])
    version.check([version.request(2, 33, "bdf", own_dense=1)])
    users = ["abc", "abd", "ab", "abc", "abcd", "abe"]  # a, b and the floats are everybody's
    version.check([version.request(i, 9 + i, user) for i, user in enumerate(users)])
    version.check([version.request(1, 20, "abcd", replaced="bd"), version.request(2, 20, "ac", absent="f")])


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Version:
    folder = tmp_path_factory.mktemp("tower")
    return Version(folder, *export(folder, "dnn", TOWER))


def test_batches_in_turn_do_not_meet(tower: Version) -> None:
    for seed, user in enumerate(["abc", "def", "abc", "a", "abcde"]):
        tower.check([tower.request(seed, 17, user)])
        tower.check([tower.request(seed + 50, 8, user), tower.request(seed + 70, 12, user)])


def test_large_batches_go_through_the_graph_in_parts(tower: Version) -> None:
    tower.check([tower.request(1, 901, "abc")])
    tower.check([tower.request(seed, 150 + seed, "abc", own_dense=1) for seed in range(6)])
    tower.check([tower.request(3, 901, "", own_dense=DENSE)], is_split=False)


def test_too_little_in_common_is_scored_whole(tower: Version) -> None:
    tower.check([tower.request(1, 7, "abcdef"[:5])], is_split=False)
    tower.check([tower.request(1, 40, "", own_dense=DENSE)], is_split=False)
    # Each shares half of its slots, but not the same half.
    parts = [tower.request(1, 40, "abc", own_dense=DENSE), tower.request(2, 40, "def", own_dense=DENSE)]
    tower.check(parts, is_split=False)
    # The user's values once more for each candidate.
    _, _, whole = tower.request(3, 40, "abcde", own_dense=DENSE)
    scored = tower.served.score(whole)
    assert not scored.is_split and np.abs(scored.scores - tower.expected(whole)).max() <= 1e-6


def test_candidates_that_are_all_alike_are_scored(tower: Version) -> None:
    own, shared, whole = tower.request(4, 20, "abcdef")
    (scored,) = tower.served.score_requests([(own, shared)])
    assert not scored.is_split and np.abs(scored.scores - tower.expected(whole)).max() <= 1e-6


def test_requests_without_candidates_do_not_delay_others(tower: Version) -> None:
    none = tower.request(5, 0, "ab")
    some = tower.request(6, 30, "abc")
    scored = tower.served.score_requests([(own, shared) for own, shared, _ in (none, some, none)])
    assert [one.scores.shape for one in scored] == [(0, 1), (30, 1), (0, 1)] and scored[1].is_split
    assert np.abs(scored[1].scores - tower.expected(some[2])).max() <= 1e-6


def make_graph(nodes: list[onnx.NodeProto], **weights: Any) -> bytes:
    shapes: list[tuple[str, list[Any]]] = [("pooled", ["n", len(SLOTS) * DIM]), ("dense", ["n", DENSE])]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Sigmoid", ["logits"], ["scores"])],
        "made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(np.array(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


WIDTH = len(SLOTS) * DIM + DENSE
RANDOM = np.random.default_rng(2)
W = RANDOM.normal(scale=0.2, size=(WIDTH, 40)).astype(np.float32)
OUT = {"out": RANDOM.normal(size=(40, 1)).astype(np.float32)}
CONCAT = helper.make_node("Concat", ["pooled", "dense"], ["all"], axis=1)
TAIL = [helper.make_node("Tanh", ["first"], ["hidden"]), helper.make_node("MatMul", ["hidden", "out"], ["logits"])]


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        (  # another order, a column twice, a part negative from the end, scaled, alpha and beta
            [
                CONCAT,
                helper.make_node("Slice", ["all", "minus9", "end", "one"], ["tail"]),
                helper.make_node("Concat", ["dense", "tail", "pooled"], ["mixed"], axis=-1),
                helper.make_node("Mul", ["half", "mixed"], ["scaled"]),
                helper.make_node("Gemm", ["scaled", "w", "c"], ["first"], alpha=0.5, beta=3.0),
            ],
            {"w": np.concatenate([W, W[:9]]), "c": W[:1], "half": np.float32(0.5), "minus9": [-9], "end": [1 << 40],
             "one": [1]},
        ),
        (  # a bias that is added, a difference of two layers, squares of wide sums
            [
                CONCAT,
                helper.make_node("MatMul", ["all", "w"], ["a"]),
                helper.make_node("Add", ["c", "a"], ["b"]),
                helper.make_node("Mul", ["all", "all"], ["squares"]),
                helper.make_node("MatMul", ["squares", "w"], ["d"]),
                helper.make_node("MatMul", ["pooled", "v"], ["e"]),
                helper.make_node("Sub", ["b", "e"], ["f"]),
                helper.make_node("Sub", ["f", "d"], ["first"]),
            ],
            {"w": W, "v": W[:-DENSE] * 2, "c": W[0]},
        ),
    ],
    ids=["columns", "sums"],
)  # fmt: skip
def test_users_graphs_are_cut_too(tmp_path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any]) -> None:
    version = Version(tmp_path, make_graph([*nodes, *TAIL], **weights, **OUT))
    assert version.served.native.why_whole == ""
    version.check([version.request(1, 40, "abc")])
    version.check([version.request(2, 20, "abc"), version.request(3, 20, "ab", own_dense=2)])


@pytest.mark.parametrize(
    ("nodes", "weights", "why"),
    [
        (
            [CONCAT, helper.make_node("Relu", ["all"], ["used"]), helper.make_node("MatMul", ["used", "w"], ["first"])],
            {"w": W},
            "no layer of the graph reads",
        ),
        (
            [
                CONCAT,
                helper.make_node("ReduceSum", ["dense", "one"], ["wide"], keepdims=1),
                helper.make_node("Relu", ["all"], ["used"]),
                helper.make_node("MatMul", ["used", "w"], ["product"]),
                helper.make_node("Add", ["product", "wide"], ["first"]),
            ],
            {"w": W, "one": [1]},
            "most of the graph reads pooled rows other than",
        ),
        (
            [  # every second sample only: not a thing of columns
                CONCAT,
                helper.make_node("Slice", ["all", "zero", "end", "zero", "one"], ["some"]),
                helper.make_node("Slice", ["some", "zero", "two", "zero"], ["few"]),
                helper.make_node("MatMul", ["few", "w"], ["first"]),
            ],
            {"w": W, "zero": [0], "one": [1], "two": [2], "end": [1 << 40]},
            "no layer of the graph reads",
        ),
    ],
)
def test_why_a_graph_stays_whole_is_said(
    tmp_path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any], why: str
) -> None:
    version = Version(tmp_path, make_graph([*nodes, *TAIL], **weights, **OUT))
    assert why in version.served.native.why_whole


def test_a_version_is_held_to_its_samples(tower: Version) -> None:
    _, _, batch = tower.request(1, 20, "abc")
    scores = tower.expected(batch)
    native, settings = tower.served.native, VerifySettings()
    assert check_shared(native, tower.schema, format_samples(batch, scores, scores), settings, "ctr/1") == ""
    bad = scores + np.float32(1e-4)
    why = check_shared(native, tower.schema, format_samples(batch, bad, bad), settings, "ctr/1")
    assert "scores would differ from those in samples.json by 0.0001" in why
