"""Benchmarks end with a figure or a message, even on a busy machine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def ps_runs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    ps_runs = importlib.import_module("ps_runs")
    monkeypatch.delitem(sys.modules, "ps_runs")
    return ps_runs


def test_a_run_is_measured_in_its_middle(ps_runs: ModuleType) -> None:
    moments = [ps_runs.Moment(float(i), 2.0 * i, 1000 * i) for i in range(11)]
    moments[0] = ps_runs.Moment(0.0, -50.0, 0)  # starting costs what it may
    assert ps_runs.speed_between(moments) == ps_runs.Speed(2000.0, 1000.0)


@pytest.mark.parametrize("frozen", ["time", "cpu_s", "samples"])
def test_a_watcher_that_was_held_up_divides_by_nothing(ps_runs: ModuleType, frozen: str) -> None:
    at = [{"time": float(i), "cpu_s": 2.0 * i, "samples": 1000 * i} for i in range(11)]
    stopped = [{**moment, frozen: at[-1][frozen]} for moment in at]
    assert ps_runs.speed_between([ps_runs.Moment(**moment) for moment in stopped]) is None
    assert ps_runs.speed_between([]) is None


def test_too_few_looks_at_the_middle_are_those_at_the_whole(ps_runs: ModuleType) -> None:
    moments = [ps_runs.Moment(float(i), 2.0 * i, 1000 * i) for i in (0, 1, 10)]
    assert ps_runs.speed_between(moments) == ps_runs.Speed(2000.0, 1000.0)
