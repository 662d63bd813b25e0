"""Rows on a Cube: a version waits for it, and a dead shard is handled as the policy says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from elasticctr.errors import Unavailable
from elasticctr.versions.repository import Repository
from tests.cluster.harness import Cluster, wait_until
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored


def _settings(cluster: Cluster, tmp_path: Path) -> Path:
    shards = [
        [f"127.0.0.1:{one.server_port}" for one in cluster.instances if one.shard == shard]
        for shard in range(cluster.shards)
    ]
    settings: dict[str, Any] = {"shards": shards, "token_file": str(cluster.token_file), "timeout_ms": 2000}
    path = tmp_path / "cube.yaml"
    path.write_text(yaml.safe_dump(settings | {"connect_ms": 500, "retries": 1}))
    return path


@pytest.mark.slow
def test_versions_wait_for_the_cube_and_dead_shards_follow_policy(tmp_path: Path) -> None:
    with Cluster(tmp_path, shards=2, replicas=1) as cluster:
        scored = Scored(Repository(str(cluster.repository)))
        scored.base()
        cluster.start()
        cluster.wait_live(1)
        conf = _settings(cluster, tmp_path)
        repo = str(cluster.repository)
        models = [
            {"name": "ctr", "repo": repo, "cube": str(conf), "policy": {"cube_timeout_ms": 1500}},
            {
                "name": "lenient",
                "published_as": "ctr",
                "repo": repo,
                "cube": str(conf),
                "policy": {"dead_shards": "degrade", "late_cube": "degrade", "cube_timeout_ms": 1500},
            },
        ]
        with Predictor(tmp_path, scored) as predictor:
            predictor.start(models=models)
            predictor.wait_live(1)
            predictor.wait_live(1, "lenient")
            with predictor.load(rate=100) as load:
                for instance in cluster.instances:
                    assert instance.agent is not None
                    instance.agent.pause()  # the Cube cannot get it
                version = scored.delta()
                wait_until(
                    lambda: (predictor.status()["loading"] or {}).get("step") == "waiting for Cube", "waiting", 30
                )
                time.sleep(0.5)
                assert predictor.status()["live"] == 1
                for instance in cluster.instances:
                    assert instance.agent is not None
                    instance.agent.resume()
                predictor.wait_live(version)
                predictor.wait_live(version, "lenient")
                assert predictor.command("rollback")["live"] == 1
                time.sleep(0.2)
                predictor.command("resume")
                predictor.wait_live(version)
            found = load.check()
            assert set(found.versions) == {1, 2}
            _kill_a_shard(cluster, predictor, scored)


def _kill_a_shard(cluster: Cluster, predictor: Predictor, scored: Scored) -> None:
    dead = cluster.instances[1]
    assert dead.server is not None and dead.agent is not None
    dead.agent.kill()
    dead.server.kill()
    samples = scored.draw(np.random.default_rng(0), 50)
    with pytest.raises(Unavailable, match="shard"):
        predictor.predict(samples)
    answer = predictor.predict(samples, "lenient")
    assert answer["coverage"]["degraded"] is True
    assert any("shard 1" in reason for reason in answer["coverage"]["reasons"]), answer
    assert answer["coverage"]["found"] < answer["coverage"]["asked"]
    dead.start_server()

    def is_back() -> bool:
        answer = predictor.predict(samples, "lenient")
        return not answer["coverage"]["degraded"] and scored.is_right(answer["version"], samples, answer["scores"])

    wait_until(is_back, "the shard answers again", 60)
