"""Explanations of runs whose truth is known: a strong slot, a weak one, noise, a twin, a constant, an absent one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.known_run import make_known_run
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.train.explain.contributions import TOLERANCE, contribute, gradient_importance
from elasticctr.train.explain.evidence import Evidence, collect
from elasticctr.train.explain.slots import measure_determined
from elasticctr.train.learner import Learner
from elasticctr.train.loading import load_learner
from elasticctr.train.reading import open_dataset


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_known_run(tmp_path_factory.mktemp("explain"))


@pytest.fixture(scope="module")
def found(run: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["explain", str(run), "--predictions", "4", "--repeats", "2", "--json"])
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def open_evidence(run: Path, samples: int) -> tuple[Learner, Evidence]:
    learner, job = load_learner(run)
    assert job.data.test is not None
    return learner, collect(learner, open_dataset(job.data.test, job.samples), samples=samples)


def test_slots_stand_in_the_order_of_their_truth(found: dict[str, Any]) -> None:
    slots = {slot["slot"]: slot for slot in found["slots"]}
    order = [slot["slot"] for slot in found["slots"]]
    assert found["samples"] == 3000 and set(order[:2]) == {"strong", "twin"} and order[2] == "price"
    for name in ("strong", "twin", "price", "weak"):
        assert slots[name]["logloss_gain"]["is_clear"], name
        assert slots[name]["auc_loss"]["lo"] <= slots[name]["auc_loss"]["mean"] <= slots[name]["auc_loss"]["hi"]
    assert slots["strong"]["auc_loss"]["mean"] > 3 * slots["weak"]["auc_loss"]["mean"] > 0
    assert abs(slots["noise"]["auc_loss"]["mean"]) < 0.005
    assert slots["strong"]["gradient"] > 1.3 * slots["weak"]["gradient"] > 1.3 * slots["noise"]["gradient"]
    assert slots["constant"]["logloss_gain"]["mean"] == slots["absent"]["auc_loss"]["mean"] == 0


def test_dead_and_redundant_slots_are_named(found: dict[str, Any]) -> None:
    dead = {slot["slot"]: slot["dead"] for slot in found["slots"] if slot["dead"] is not None}
    assert dead == {"constant": "one value", "absent": "absent"}
    pairs = {(one["slot"], one["given"]): one for one in found["redundant"]}
    assert set(pairs) == {("strong", "twin"), ("twin", "strong")}
    assert pairs["strong", "twin"]["determined"] == 1 and pairs["strong", "twin"]["similarity"] > 0.99


def test_contributions_of_a_linear_model_are_its_weights(run: Path) -> None:
    learner, evidence = open_evidence(run, 50)
    result = contribute(learner, evidence, 50)
    assert np.abs(result.residual).max() < 1e-5 and result.steps == 8
    flat = evidence.inputs.flat.double().numpy()
    for place, part in enumerate(evidence.parts[:6]):
        assert result.values[:, place] == pytest.approx(flat[:, list(part.columns)].sum(axis=1), abs=1e-6)
    assert result.slots == ["strong", "weak", "noise", "twin", "constant", "absent", "price"]
    assert gradient_importance(learner, evidence) == pytest.approx(np.abs(result.values).mean(axis=0), abs=1e-5)


@pytest.mark.parametrize("model", ["deepfm", "dcnv2"])
def test_contributions_of_a_deep_model_add_up_to_its_logits(tmp_path: Path, model: str) -> None:
    learner, evidence = open_evidence(make_known_run(tmp_path, model=model, dim=4, hidden=[16, 8]), 40)
    result = contribute(learner, evidence, 40)
    logits = evidence.score(learner, evidence.inputs)
    assert result.logits == pytest.approx(logits, abs=1e-6)
    allowed = TOLERANCE * np.maximum(1, np.abs(result.logits - result.baseline))
    assert (np.abs(result.residual) <= allowed).all()
    assert np.abs(result.values).sum() > 10 and result.values[:, 5] == pytest.approx(0)


def test_the_run_keeps_the_answer_and_the_report_shows_it(run: Path, found: dict[str, Any]) -> None:
    assert json.loads((run / "explain.json").read_text()) == found
    assert len(found["predictions"]) == 4
    for one in found["predictions"]:
        total = one["baseline"] + sum(one["contributions"].values()) + one["residual"]
        assert total == pytest.approx(one["logit"], abs=1e-9)
    report = (run / "report.html").read_text()
    assert "known from" in report and "one value" in report and "Prediction 4" in report
    assert (run / "plots" / "importance.png").stat().st_size > 5000


def test_exchanging_a_slot_is_exchanging_its_values(run: Path) -> None:
    learner, evidence = open_evidence(run, 30)
    part = evidence.parts[0]
    order = np.random.default_rng(0).permutation(30)
    values = evidence.batch.values.copy()
    values[:30] = values[order]  # slot after slot, one value each
    swapped = type(evidence.batch)(
        **{name: getattr(evidence.batch, name) for name in evidence.batch.__slots__} | {"values": values}
    )
    from elasticctr.train.reading import PreparedBatch

    expected = learner.predict(PreparedBatch(swapped, learner.look_up(swapped), {}))
    assert evidence.score(learner, evidence.exchange(part, order)) == pytest.approx(expected, abs=1e-6)


def test_what_chance_settles_is_not_called_determined() -> None:
    random = np.random.default_rng(1)
    order = random.permutation(1000)
    few = random.integers(0, 5, 1000).astype(np.uint64)
    assert measure_determined(few, np.arange(1000, dtype=np.uint64), order) is None  # an id per sample
    assert measure_determined(few, random.integers(0, 4, 1000).astype(np.uint64), order) == pytest.approx(0, abs=0.02)
    assert measure_determined(few // np.uint64(2), few, order) == 1
    assert (measure_determined(few, few // np.uint64(2), order) or 0) < 0.8


def test_wrong_use_is_one_clear_line(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", str(run), "--label", "buy"])
    assert done.exit_code == 10 and "'buy' is not a label" in done.stderr
    (tmp_path / "empty.txt").write_text("")
    done = CliRunner().invoke(app, ["explain", str(run), "--data", str(tmp_path / "empty.txt")])
    assert done.exit_code == 11 and "no samples" in done.stderr
