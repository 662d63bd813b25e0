"""The report of a search: best first, failures with their reason, escaped, and possible before any trial ended."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from elasticctr.tune.report import write_report
from elasticctr.tune.settings import TuneSettings
from elasticctr.tune.study import StudyResult, Tried

SPACE: dict[str, Any] = {"model.dim": {"choice": [4, 8]}, "dense.learning_rate": {"log": [0.001, 0.1]}}


def make_settings(metric: str = "auc") -> TuneSettings:
    return TuneSettings.model_validate({"job": "job.yaml", "space": SPACE, "metric": metric})


def trial(number: int, score: float | None, state: str = "complete", reason: str | None = None) -> Tried:
    values = {"model.dim": 4 + 4 * (number % 2), "dense.learning_rate": 0.01}
    return Tried(number, state, values, score, {} if score is None else {1: score - 0.1, 2: score}, 1.0, reason)


def report(folder: Path, tried: list[Tried], best: Tried | None, metric: str = "auc", **more: Any) -> str:
    found = StudyResult(folder, best, tried, is_finished=more.pop("is_finished", True))
    return write_report(found, make_settings(metric), more).read_text(encoding="utf-8")


def trial_rows(page: str) -> list[str]:
    """The numbers of the trials, from top to bottom."""
    return re.findall(r"<tr><td>(\d+)</td><td>(?:complete|pruned|failed)", page)


@pytest.mark.parametrize(("metric", "order"), [("auc", ["2", "1", "0", "3"]), ("logloss", ["0", "1", "2", "3"])])
def test_the_best_trial_comes_first_and_failures_last(tmp_path: Path, metric: str, order: list[str]) -> None:
    tried = [trial(0, 0.5), trial(1, 0.6), trial(2, 0.7), trial(3, None, "failed", "out of memory")]
    page = report(tmp_path, tried, tried[int(order[0])], metric)
    assert trial_rows(page) == order and "out of memory" in page
    assert "3 complete, 1 failed" in page and f"trial {order[0]}" in page


def test_a_search_without_results_has_a_page(tmp_path: Path) -> None:
    page = report(tmp_path, [], None, is_finished=False)
    assert "not finished" in page and "<img" not in page
    assert list((tmp_path / "plots").iterdir()) == []


def test_plots_are_drawn_where_there_is_something_to_show(tmp_path: Path) -> None:
    tried = [trial(0, 0.5), trial(1, 0.6)]
    assert report(tmp_path, tried, tried[1]).count("<img") == 4
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert names == {"history.png", "curves.png", "by-model.dim.png", "by-dense.learning_rate.png"}
    # A report of fewer results takes away what it cannot draw.
    report(tmp_path, tried[:1], tried[0])
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"history.png", "curves.png"}


def test_what_users_wrote_is_escaped(tmp_path: Path) -> None:
    reason = "<script>alert(1)</script>"
    page = report(tmp_path / "<b>study", [trial(0, None, "failed", reason)], None)
    assert reason not in page and "&lt;script&gt;" in page and "<b>study" not in page
