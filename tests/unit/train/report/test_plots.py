"""Plots: every kind is drawn where there is data, none where there is not, and the curves hold the right numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.train.metrics.metrics import Metrics
from elasticctr.train.report.plots import plot_calibration, plot_progress, plot_roc, plot_scores, write_plots


def make_events(steps: int) -> Iterator[dict[str, Any]]:
    for step in range(1, steps + 1):
        yield {
            "event": "train",
            "step": step,
            "samples": step * 100,
            "loss": 1 / step,
            "auc": None if step == 1 else 0.7,
        }
        if step % 5 == 0:
            yield {"event": "eval", "split": "test", "step": step, "samples": step * 100, "logloss": 0.2, "auc": 0.8}


def make_metrics(labels: float | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=5000) - 4).astype(np.float32)
    metrics = Metrics()
    metrics.update(logits, (rng.random(5000) < 0.02).astype(np.float32) if labels is None else np.full(5000, labels))
    return {"test": {**metrics.as_dict(), **metrics.curves()}}


def test_all_plots_are_png_files(tmp_path: Path) -> None:
    paths = write_plots(list(make_events(10)), make_metrics(), tmp_path / "plots")
    assert [p.name for p in paths] == ["loss.png", "auc.png", "calibration.png", "roc.png", "scores.png"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and path.stat().st_size > 5000


def test_a_run_without_numbers_has_no_plots_and_old_ones_go(tmp_path: Path) -> None:
    write_plots(list(make_events(3)), {}, tmp_path)
    assert (tmp_path / "loss.png").exists()
    assert write_plots([{"event": "end", "step": 1, "samples": 5}], {"test": {"auc": None}}, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_draws_what_is_defined(label: float) -> None:
    metrics = make_metrics(label)
    assert plot_roc(metrics) is None
    assert plot_calibration(metrics) is not None
    assert plot_scores(metrics) is not None


def test_progress_draws_the_values_it_was_given() -> None:
    figure: Any = plot_progress(list(make_events(10)), "loss", "logloss", "Loss", "logloss")
    train, evaluated = figure.axes[0].get_lines()
    assert train.get_xdata().tolist() == [100.0 * k for k in range(1, 11)]
    assert train.get_ydata().tolist() == [1 / k for k in range(1, 11)]
    assert evaluated.get_xdata().tolist() == [500, 1000] and evaluated.get_label() == "test"


def test_long_runs_get_a_running_mean() -> None:
    events = [{"event": "train", "samples": i, "loss": float(i % 2)} for i in range(400)]
    figure: Any = plot_progress(events, "loss", "logloss", "Loss", "logloss")
    raw, mean = figure.axes[0].get_lines()
    assert len(raw.get_ydata()) == 400
    assert np.asarray(mean.get_ydata())[20:] == pytest.approx(0.5)


def test_a_single_point_is_drawn(tmp_path: Path) -> None:
    assert write_plots(list(make_events(1)), {}, tmp_path)


def test_no_display_and_no_pyplot_state_is_used() -> None:
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
