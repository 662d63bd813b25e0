"""One error shape, one progress, one way to print."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from elasticctr.cli.output import print_json, print_table
from elasticctr.obs.progress import Progress


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("elasticctr.obs.progress.time.monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def _run(clock: Clock, console: Console, steps: list[float], total: int | None = 1000) -> None:
    with Progress("work", total=total, console=console) as progress:
        for step_s in steps:
            clock.now_s += step_s
            progress.advance(100, note="loss [0.5]")


def test_short_work_shows_nothing(clock: Clock) -> None:
    out = io.StringIO()
    _run(clock, Console(file=out), [0.1] * 10)
    assert out.getvalue() == ""


def test_long_work_off_a_terminal_gets_a_line_every_few_seconds(clock: Clock) -> None:
    out = io.StringIO()
    _run(clock, Console(file=out), [1.0] * 10)
    lines = out.getvalue().splitlines()
    assert lines == [
        "work: 200 of 1,000 samples (20%), 100 samples/s, 8 s left, loss [0.5]",
        "work: 700 of 1,000 samples (70%), 100 samples/s, 3 s left, loss [0.5]",
    ]


def test_unknown_totals_have_no_time_left(clock: Clock) -> None:
    out = io.StringIO()
    _run(clock, Console(file=out), [3.0], total=None)
    assert out.getvalue() == "work: 100 samples, 33 samples/s, loss [0.5]\n"


def test_a_terminal_gets_a_bar(clock: Clock) -> None:
    out = io.StringIO()
    _run(clock, Console(file=out, force_terminal=True, width=160), [1.0] * 4)
    assert "work" in out.getvalue() and "samples/s" in out.getvalue() and "loss [0.5]" in out.getvalue()


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.nan, "b": [math.inf, 1.5], "c": {"d": 2**64 - 1}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": {"d": 2**64 - 1}}


def test_tables_are_tab_separated_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Things", ("name", "#count"), [("[bold]", "1"), ("b", "2")])
    assert capsys.readouterr().out.splitlines()[-3:] == ["name\tcount", "[bold]\t1", "b\t2"]
