"""Figures are of the last full window."""

from __future__ import annotations

import pytest

from elasticctr.train.log_window import LogWindow


def test_figures_are_of_the_window_that_was_turned_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("elasticctr.train.log_window.time.monotonic", lambda: now[0])
    window = LogWindow()
    assert not window.turn() and (window.last_loss, window.rate) == (None, None)
    window.add(30, 15.0)
    window.add(10, 15.0)
    now[0] = 104.0
    assert window.turn() and (window.last_loss, window.rate) == (0.75, 10.0)
    window.add(5, 1.0)
    assert (window.last_loss, window.rate) == (0.75, 10.0)
    now[0] = 105.0
    assert window.turn() and (window.last_loss, window.rate) == (0.2, 5.0)
    assert not window.turn() and window.rate == 5.0  # nothing since: the figures stay
