"""A search finds the best trial, drops bad ones, and survives being killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.tune.settings import TuneSettings
from elasticctr.tune.study import Study

SPACE = {"model.hidden": {"choice": [[8], [16, 8]]}, "dense.learning_rate": {"log": [1e-4, 1e-1]}}


def settings(**changes: Any) -> TuneSettings:
    return TuneSettings.model_validate({"job": "job.yaml", "space": SPACE, **changes})


def score(values: dict[str, Any]) -> float:
    """Best at a rate of 0.01 and the larger model."""
    import math

    return 0.8 - 0.05 * abs(math.log10(values["dense.learning_rate"]) + 2) + 0.01 * len(values["model.hidden"])


def test_it_finds_what_is_best_and_remembers_it(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.log", settings(pruning={"kind": "none"}))
    for _ in range(30):
        asked = study.ask()
        assert asked is not None
        study.tell(asked[0], score(asked[1]))
    best = study.best()
    assert best is not None and best.score is not None and best.score > 0.81
    assert best.values["model.hidden"] == [16, 8] and 0.003 < best.values["dense.learning_rate"] < 0.03
    importances = study.importances()
    assert set(importances) == set(SPACE)
    again = Study(tmp_path / "study.log", settings())
    assert again.tried() == study.tried() and again.best() == best


def test_logloss_is_minimised(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.log", settings(metric="logloss"))
    for value in (0.5, 0.3, 0.4):
        asked = study.ask()
        assert asked is not None
        study.tell(asked[0], value)
    best = study.best()
    assert best is not None and best.number == 1


def test_a_run_below_the_median_is_given_up(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.log", settings(pruning={"startup": 2, "warmup": 1}))
    for value in (0.7, 0.8):
        number, _ = study.ask() or (0, {})
        for evaluation in (1, 2, 3):
            assert not study.report(number, evaluation, value)
        study.tell(number, value)
    number, _ = study.ask() or (0, {})
    assert not study.report(number, 1, 0.6), "still warming up"
    assert study.report(number, 2, 0.6)
    study.tell_pruned(number)
    number, _ = study.ask() or (0, {})
    assert not study.report(number, 2, 0.9)
    study.tell_failed(number, "no such slot")
    assert [(t.state, t.reason) for t in study.tried()] == [
        ("complete", None),
        ("complete", None),
        ("pruned", None),
        ("failed", "no such slot"),
    ]


def test_what_a_killed_search_left_running_is_begun_anew(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.log", settings())
    number, values = study.ask() or (0, {})
    again = Study(tmp_path / "study.log", settings())
    assert again.take_over() == [(number, number + 1, values)]
    again.tell(number + 1, 0.75)
    assert [(t.number, t.state) for t in again.tried()] == [(number + 1, "complete")]
    assert again.take_over() == []


@pytest.mark.parametrize("step", [None, 2])
def test_a_grid_ends_when_everything_was_tried(tmp_path: Path, step: int | None) -> None:
    space = {"a.b": {"choice": ["x", None, 1.5]}, "a.c": {"integer": [1, 4], "step": step or 1}}
    study = Study(tmp_path / "study.log", settings(sampler="grid", space=space))
    seen = []
    while (asked := study.ask()) is not None:
        seen.append((asked[1]["a.b"], asked[1]["a.c"]))
        study.tell(asked[0], 0.5)
        assert len(seen) <= 12
    assert len(set(seen)) == len(seen) == (6 if step else 12)
