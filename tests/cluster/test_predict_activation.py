"""Versions change under load: clients notice it only by the version in their answers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticctr.versions.repository import Repository
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored


@pytest.fixture
def scored(tmp_path: Path) -> Scored:
    return Scored(Repository(str(tmp_path / "repo")))


def test_bases_deltas_and_rollbacks_under_load(tmp_path: Path, scored: Scored) -> None:
    scored.base()
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(1)
        assert predictor.is_ready()
        with predictor.load() as load:
            predictor.wait_live(scored.delta())
            predictor.wait_live(scored.base())
            predictor.wait_live(scored.delta())
            assert predictor.command("rollback")["live"] == 3, "at once"
            time.sleep(0.2)
            predictor.command("resume")
            predictor.wait_live(4)
            scored.rollback(3)
            predictor.wait_live(3)
            time.sleep(0.2)
        found = load.check()
        assert set(found.versions) == {1, 2, 3, 4}


def test_sigterm_loses_nothing(tmp_path: Path, scored: Scored) -> None:
    """A client that stops sending once the server is not ready gets every answer."""
    scored.base()
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(1)
        with predictor.load(threads=4, rate=400) as load:
            time.sleep(0.3)
            assert predictor.process is not None
            import os
            import signal

            os.kill(predictor.process.pid, signal.SIGTERM)
            while predictor.is_ready():
                time.sleep(0.005)
        load.check()
        assert predictor.process.stop() == 0


@pytest.mark.slow
def test_many_activations_under_load(tmp_path: Path, scored: Scored) -> None:
    scored.base()
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(1)
        with predictor.load(rate=500, threads=4) as load:
            for number in range(20):
                predictor.wait_live(scored.base() if number % 5 == 0 else scored.delta())
            for _ in range(3):
                predictor.command("rollback")
                time.sleep(0.1)
                predictor.command("resume")
                predictor.wait_live(scored.truth.newest)
        found = load.check()
        assert len(found.versions) > 15
