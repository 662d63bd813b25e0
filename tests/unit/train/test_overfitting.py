"""The second-epoch cliff: told once, only for curves that have it, and the same after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.publish.learning import make_job

from elasticctr.train.events import read_events
from elasticctr.train.job import Job, TrainSettings
from elasticctr.train.overfitting import Overfitting, OverfittingWatch
from elasticctr.train.report.report import RunFiles, render_report
from elasticctr.train.schedule import Schedule
from elasticctr.train.trainer import Trainer

Curve = list[tuple[float, float, float | None]]  # by epoch: training logloss, validation logloss, validation AUC

CLIFF: Curve = [(0.460, 0.450, 0.790), (0.400, 0.480, 0.760), (0.330, 0.560, 0.720)]


def see(watch: OverfittingWatch, curve: Curve, first: int = 1) -> list[Overfitting | None]:
    return [watch.see(first + i, t, {"logloss": v, "auc": a}) for i, (t, v, a) in enumerate(curve)]


def test_the_cliff_is_told_once_with_what_to_do() -> None:
    first, second, third = see(OverfittingWatch(), CLIFF)
    assert first is None and third is None
    assert second is not None and (second.best.epoch, second.now.epoch) == (1, 2)
    for word in ("0.4600", "0.4000", "0.4500", "0.4800", "0.7900", "0.7600", "train.epochs: 1", "train.early_stopping"):
        assert word in second.text
    assert "sparse.admission.count" in second.text and "sparse.optimizer.l2" in second.text
    assert json.loads(json.dumps(second.as_dict()))["best"]["epoch"] == 1


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param([(0.46, 0.45, 0.79), (0.44, 0.445, 0.795), (0.43, 0.4449, 0.7951)], id="healthy"),
        pytest.param([(0.46, 0.45, 0.79), (0.459, 0.452, 0.788)], id="training loss hardly falls"),
        pytest.param([(0.46, 0.45, 0.79), (0.44, 0.4501, 0.7899)], id="within noise"),
        pytest.param([(0.46, 0.45, 0.79), (0.44, 0.46, 0.80)], id="order better, calibration worse"),
        pytest.param([(0.46, 0.45, 0.79)], id="one epoch"),
    ],
)
def test_other_curves_are_not_warned_of(curve: Curve) -> None:
    assert see(OverfittingWatch(), curve) == [None] * len(curve)


def test_later_overfitting_names_the_best_epoch() -> None:
    found = see(OverfittingWatch(), [(0.46, 0.46, None), (0.45, 0.44, None), (0.40, 0.47, None)])
    assert found[:2] == [None, None]
    assert found[2] is not None and "train.epochs: 2" in found[2].text and "AUC" not in found[2].text


def test_evaluations_within_the_first_epoch_are_not_compared_with_each_other() -> None:
    watch = OverfittingWatch()
    assert watch.see(1, 0.6, {"logloss": 0.40, "auc": 0.7}) is None
    assert watch.see(1, 0.4, {"logloss": 0.50, "auc": 0.6}) is None
    assert watch.see(2, 0.3, {"logloss": None, "auc": None}) is None
    assert watch.see(2, 0.3, {"logloss": 0.6, "auc": 0.5}) is not None


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_resumed_run_is_told_the_same(epochs: int) -> None:
    original, restored = Schedule(TrainSettings()), Schedule(TrainSettings())
    see(original.overfitting, CLIFF[:epochs])
    restored.restore(json.loads(json.dumps(original.state())))
    rest = CLIFF[epochs:]
    assert see(original.overfitting, rest, epochs + 1) == see(restored.overfitting, rest, epochs + 1)


def write_log(path: Path, samples: int, seed: int) -> Path:
    """Clicks follow `strong`; every `user` occurs about twice and says nothing."""
    random = np.random.default_rng(seed)
    strong, user = random.integers(0, 4, samples), random.integers(0, 2000, samples)
    clicks = random.random(samples) < np.array([0.1, 0.3, 0.5, 0.7])[strong]
    lines = (f"click:{int(c)} user:u{u} ad:a{s} x:0 x:0\n" for c, u, s in zip(clicks, user, strong, strict=True))
    path.write_text("".join(lines))
    return path


def make_cliff_job(tmp_path: Path, **more: Any) -> Job:
    """Its best epoch is the first of three."""
    logs = {split: str(write_log(tmp_path / f"{split}.txt", 4000, i)) for i, split in enumerate(("train", "valid"))}
    return make_job(
        tmp_path,
        data=logs,
        sparse={"optimizer": {"name": "adam", "learning_rate": 0.1}},
        **({"train": {"threads": 1, "batch_size": 100, "epochs": 3}} | more),
    )


def test_a_run_says_so_on_the_console_in_its_log_and_in_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_cliff_job(tmp_path)
    Trainer(job).run()
    (warning,) = read_events(Path(job.run_dir) / "events.jsonl", "warning")
    assert (warning["kind"], warning["best"]["epoch"], warning["now"]["epoch"]) == ("overfitting", 1, 2)
    assert warning["now"]["train_logloss"] < warning["best"]["train_logloss"]
    assert capsys.readouterr().err.count("overfitting after one epoch") == 1
    page = render_report(RunFiles.load(job.run_dir), [])
    assert page.count("overfitting after one epoch") == 1 and "<h2>Warnings</h2>" in page
