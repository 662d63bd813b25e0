"""The prediction server is killed at the worst moment; its successor answers from a complete version."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from elasticctr.versions.repository import Repository
from tests.cluster.harness import wait_until
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored


@pytest.mark.slow
def test_killed_while_a_version_is_made_ready(tmp_path: Path) -> None:
    scored = Scored(Repository(str(tmp_path / "repo")), count=200_000)
    scored.base()
    samples = scored.draw(np.random.default_rng(0), 10)
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(1)
        for round_ in range(4):
            version = scored.base()
            wait_until(lambda: predictor.status()["loading"], "loading", 20, 0.001)
            time.sleep(0.05 * round_)
            assert predictor.process is not None
            predictor.process.kill()
            predictor.start()
            predictor.wait_live(version)
            answer = predictor.predict(samples)
            assert answer["version"] == version
            assert scored.is_right(version, samples, answer["scores"])
            left = [path.name for path in (tmp_path / "index" / "ctr" / "ctr").iterdir()]
            assert not [name for name in left if name.startswith((".writing", ".tmp"))], left


def test_restarted_without_its_repository(tmp_path: Path) -> None:
    scored = Scored(Repository(str(tmp_path / "repo")))
    scored.base()
    scored.delta()
    samples = scored.draw(np.random.default_rng(0), 10)
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(2)
        assert predictor.process is not None
        predictor.process.kill()
        shutil.move(tmp_path / "repo", tmp_path / "away")
        predictor.start()
        predictor.wait_live(2)
        answer = predictor.predict(samples)
        assert scored.is_right(2, samples, answer["scores"])
        with predictor.load() as load:
            shutil.move(tmp_path / "away", tmp_path / "repo")
            predictor.wait_live(scored.delta())
            time.sleep(0.1)
        load.check()
