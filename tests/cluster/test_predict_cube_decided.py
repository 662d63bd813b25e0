"""Predictions from a Cube follow its transfer's decisions, and versions in use stay there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticctr.versions.repository import Repository
from tests.cluster.harness import Cluster, Instance, wait_until
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored
from tests.cluster.test_predict_cube import _settings

POLICY = {"cube_timeout_ms": 20_000}


def _is_resident(instance: Instance, version: int) -> bool:
    models = instance.server_status()["models"]
    return any(one["version"] == version and one["state"] == "ready" for m in models for one in m["versions"])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.promise(
    "A version is prepared on the Cube and then dropped, because a replica is down or a newer one comes",
    "serve goes live only on versions that transfer has decided on: no request fails",
)
def test_version_that_was_only_prepared_is_not_served(tmp_path: Path) -> None:
    patience = {"prepare_s": 4, "first_pause_s": 0.5, "longest_pause_s": 1}
    with Cluster(tmp_path, shards=1, replicas=2, require={"policy": "all"}, patience=patience) as cluster:
        scored = Scored(Repository(str(cluster.repository)), count=1000)
        scored.base()
        cluster.start()
        cluster.wait_live(1)
        with Predictor(tmp_path, scored) as predictor:
            predictor.start(cube=str(_settings(cluster, tmp_path)), policy=POLICY)
            predictor.wait_live(1)
            well, down = cluster.instances
            assert down.agent is not None
            down.agent.kill()
            with predictor.load(rate=50) as load:
                version = scored.delta()
                wait_until(lambda: _is_resident(well, version), "prepared on one replica", 60, 0.01)
                wait_until(lambda: not _is_resident(well, version), "dropped again", 60, 0.01)
                time.sleep(1)
                assert predictor.status()["live"] == 1 and predictor.is_ready()
                down.start_agent()
                predictor.wait_live(version)
            found = load.check()
            assert set(found.versions) == {1, 2}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.promise(
    "A variant or a paused server stays on a version that the Cube would retire",
    "the Cube keeps versions that a server pins, and brings back those it has dropped",
)
def test_versions_in_use_stay_in_the_cube(tmp_path: Path) -> None:
    with Cluster(tmp_path, shards=1, replicas=1) as cluster:
        scored = Scored(Repository(str(cluster.repository)), count=1000)
        scored.base()
        cluster.start()
        cluster.wait_live(1)
        with Predictor(tmp_path, scored) as predictor:
            predictor.start(cube=str(_settings(cluster, tmp_path)), policy=POLICY)
            predictor.wait_live(1)
            predictor.command("variants", {"variants": [{"name": "old", "version": 1, "weight": 0.5}]})
            with predictor.load(rate=50) as load:
                for _ in range(3):
                    predictor.wait_live(scored.delta())
                time.sleep(2)  # for transfer to let go of what it thinks nobody needs
                assert predictor.is_ready()
            found = load.check()
            assert found.variants["old"] > 0 and found.versions[1] > 0 and found.versions[4] > 0

            # A version that the Cube has dropped returns when it is requested.
            predictor.command("variants", {"variants": []})
            wait_until(lambda: not _is_resident(cluster.instances[0], 2), "version 2 dropped", 60)
            predictor.command("activate", {"version": 2})
            predictor.wait_live(2)
            with predictor.load(rate=50) as load:
                cluster.wait_live(scored.delta())
                cluster.wait_live(scored.delta())
                time.sleep(2)
                assert predictor.is_ready() and predictor.status()["live"] == 2
            assert set(load.check().versions) == {2}
