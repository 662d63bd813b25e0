"""A served version scores the same as versions/scoring.py, wherever its rows are, and reports what was missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.serve.making import Made, make_graph, make_schema

from elasticctr import _native
from elasticctr.data.formats.parser import Parser
from elasticctr.errors import (
    ConfigError,
    Corruption,
    DataError,
    FailedPrecondition,
    NotFound,
)
from elasticctr.serve.activation.served_version import (
    LocalRows,
    Rows,
    Served,
    find_library,
    make_served_version,
)
from elasticctr.serve.settings import PolicySettings
from elasticctr.versions.samples import make_batch


def serve(made: Made, rows: Rows | None = None, labels: tuple[str, ...] = ("click",), **policy: Any) -> Served:
    schema = make_schema(labels)
    native = make_served_version(
        "ctr", made.version, schema, make_graph(len(labels)), rows or made.local(), PolicySettings(**policy), "graph"
    )
    return Served(native, schema)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize(("encoding", "shards"), [("fp32", 1), ("fp16", 1), ("int8", 1), ("fp32", 3), ("int8", 2)])
@pytest.mark.parametrize("count", [1, 257, 900])
def test_scores_are_those_of_the_reference(tmp_path: Path, encoding: Any, shards: int, count: int) -> None:
    made = Made(tmp_path, encoding, shards)
    served = serve(made)
    batch = made.samples(served.schema, count)
    result = served.score(batch)
    expected = made.expected(served.schema, make_graph(), batch)
    assert result.scores.shape == (count, 1) and np.abs(result.scores - expected).max() <= 1e-6
    # A weighted sum over every input: had one of them been zeros or junk, scores would differ.
    assert count == 1 or np.std(expected) > 0.1


def test_several_labels_get_a_score_each(made: Made) -> None:
    labels = ("click", "buy", "stay")
    served = serve(made, labels=labels)
    batch = made.samples(served.schema, 40)
    result = served.score(batch)
    assert served.native.labels == list(labels)
    assert np.abs(result.scores - made.expected(served.schema, make_graph(3), batch)).max() <= 1e-6


def test_coverage_counts_rows_of_slots_the_model_looks_at(made: Made) -> None:
    served = serve(made)
    batch = made.samples(served.schema, 100)
    result = served.score(batch)
    values = np.concatenate([batch.slot(number)[0] for number in (0, 1, 3, 4)])
    assert result.asked == len(values) and result.reasons == []
    assert result.found == np.isin(values, made.feasigns).sum() < result.asked


def test_few_rows_are_named_when_the_policy_asks(made: Made) -> None:
    served = serve(made, min_coverage=0.9)
    known, unknown = int(made.feasigns[0]), 12345
    dense = [[0.0] * 4]
    whole = make_batch(served.schema.samples, [[[known]], [[known]], [[unknown]], [[]], [[]]], dense)
    half = make_batch(served.schema.samples, [[[known]], [[unknown]], [[]], [[]], [[]]], dense)
    assert served.score(whole).reasons == []
    assert served.score(half).reasons == ["found 1 of 2 rows"]


def test_shared_values_are_those_of_every_sample(made: Made) -> None:
    served = serve(made)
    schema = served.schema.samples
    random = np.random.default_rng(9)
    user = make_batch(schema, [[random.choice(made.feasigns, 3).tolist()] for _ in schema.sparse], [[0.0] * 4])
    own = [[random.choice(made.feasigns, 2).tolist() if i % 3 else [] for i in range(50)] for _ in schema.sparse]
    dense = random.normal(size=(50, 4)).tolist()
    shared = [user.slot(number)[0].tolist() for number in range(len(schema.sparse))]
    expanded = [[values or shared[number] for values in slot] for number, slot in enumerate(own)]
    together = served.score(make_batch(schema, own, dense), user)
    apart = served.score(make_batch(schema, expanded, dense))
    assert together.scores.tobytes() == apart.scores.tobytes()
    assert together.asked < apart.asked


def test_lines_are_read_as_the_trainer_reads_them(made: Made) -> None:
    served = serve(made)
    random = np.random.default_rng(4)
    lines = []
    for _ in range(80):
        ids = [f"tags:{f}" for f in random.choice(made.feasigns, 7)] + [f"ad:{random.choice(made.feasigns)}"]
        ids += [f"clicked:{f}" for f in random.choice(made.feasigns, random.integers(0, 6))]
        lines.append(" ".join([*ids, f"user:u{random.integers(9)}", "x:0.5", "x:-1e-3", "count:17", "price:9.25"]))
    text = "\n".join(lines).encode()
    batch = Parser(served.schema.samples, require_label=False).parse(text).batch
    result = served.score_lines(text)
    assert np.abs(result.scores - made.expected(served.schema, make_graph(), batch)).max() <= 1e-6
    with pytest.raises(DataError, match="line 2: "):
        served.score_lines(b"ad:1\nad:x\n")
    with pytest.raises(DataError, match="no dense slots"):
        served.score_lines(b"1 0 5:ad\n", _native.TextFormat.FEASIGN)


def test_arrays_of_another_schema_are_refused(made: Made) -> None:
    served = serve(made)
    batch = made.samples(served.schema, 3)
    with pytest.raises(DataError, match="not of the model's schema"):
        served.native.score_batch(batch.values, batch.offsets[:-1], batch.dense, 0, None)
    with pytest.raises(DataError, match="not of the model's schema"):
        served.native.score_batch(batch.values[:-1], batch.offsets, batch.dense, 0, None)
    dense = batch.dense.copy()
    dense[1, 2] = np.nan
    with pytest.raises(DataError, match="'count'"):
        served.native.score_batch(batch.values, batch.offsets, dense, 0, None)


def test_parts_that_do_not_fit_are_refused(made: Made) -> None:
    schema = make_schema()
    policy = PolicySettings()

    def make(**change: Any) -> None:
        given: dict[str, Any] = {"version": made.version, "schema": schema, "onnx": make_graph(), "rows": made.local()}
        given |= change
        make_served_version("ctr", given["version"], given["schema"], given["onnx"], given["rows"], policy, "graph")

    with pytest.raises(Corruption, match="graph"):
        make(onnx=make_graph()[:-40])
    with pytest.raises(NotFound, match="ctr/main"):
        make(version=8)
    with pytest.raises(FailedPrecondition, match="not all shards"):
        make(rows=LocalRows([*made.stores(), *made.stores()], "ctr"))
    tables = {**schema.tables, "ads": schema.tables["ads"].model_copy(update={"dim": 6})}
    with pytest.raises(FailedPrecondition, match="asks for 6"):
        make(schema=schema.model_copy(update={"tables": tables}))
    with pytest.raises(Corruption, match="wider than"):
        make(schema=schema.model_copy(update={"pooled_width": 12}))
    with pytest.raises(Corruption, match="do not exist"):
        make(schema=schema.model_copy(update={"tables": {"main": schema.tables["main"]}}))


def test_the_version_outlives_its_store(tmp_path: Path) -> None:
    made = Made(tmp_path)
    stores = made.stores()
    served = serve(made, LocalRows(stores, "ctr"))
    batch = made.samples(served.schema, 30)
    before = served.score(batch).scores
    stores[0].retire("ctr", made.version)
    stores.clear()
    assert served.score(batch).scores.tobytes() == before.tobytes()


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install onnxruntime"):
        find_library()


def test_a_library_that_is_none_is_a_config_error(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "libonnxruntime.so.1"
    fake.write_bytes(b"no library")
    monkeypatch.setattr("elasticctr.serve.activation.served_version.find_library", lambda: fake)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        serve(made)
