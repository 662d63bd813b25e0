"""Rows that are waited for: a pserver that is lost meanwhile is seen to at once, not when the pull has timed out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from elasticctr.ps.trainer.client import Fetch, PsClient
from elasticctr.ps.trainer.failover import Interrupted
from elasticctr.ps.trainer.remote import NoFailover, Pulling, Remote
from elasticctr.train.learner import Learner


class SlowFetch:
    """Comes after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def wait(self, timeout_ms: int) -> bool:
        assert 0 < timeout_ms <= 200
        self.looks -= 1
        return self.looks <= 0


class Watching(NoFailover):
    def __init__(self, calls_off_at: int = 1000) -> None:
        super().__init__()
        self.polls = 0
        self._calls_off_at = calls_off_at

    def poll(self, waited_s: float) -> None:
        self.polls += 1
        if self.polls >= self._calls_off_at:
            raise Interrupted


def make(failover: Watching, fetch: SlowFetch) -> tuple[Remote, Pulling]:
    learner = SimpleNamespace(plan=SimpleNamespace(tables=[]), lay_out_flat=lambda: (torch.zeros(4), torch.zeros(4)))
    client = SimpleNamespace(start_pull=lambda *_: fetch)
    item: Any = None
    remote = Remote(cast(Learner, learner), cast(PsClient, client), failover)
    return remote, Pulling(item, [], True, False, cast(Fetch, fetch))


def test_pservers_are_looked_after_while_rows_are_waited_for() -> None:
    failover, fetch = Watching(), SlowFetch(4)
    remote, pulling = make(failover, fetch)
    assert remote.use_rows(pulling, lambda found: found) is cast(object, fetch)
    assert failover.polls == 3


def test_what_is_called_off_is_not_waited_for() -> None:
    failover = Watching(calls_off_at=2)
    remote, pulling = make(failover, SlowFetch(1000))
    with pytest.raises(Interrupted):
        remote.use_rows(pulling, lambda found: found)
