"""SIGSTOP: a replica that neither answers nor closes its connections. Others answer for it, rollouts pass it by, and it
catches up when it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.story import Story


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["server", "agent"])
def test_replica_hangs_during_a_rollout(tmp_path: Path, what: str) -> None:
    with Story(tmp_path, replicas=2, require={"straggler_s": 1.0}) as story:
        story.begin()
        hanging = story.cluster.instance(0, 0)
        process = hanging.server if what == "server" else hanging.agent
        assert process is not None
        process.pause()
        version = story.delta()
        story.wait_live(version, everywhere=False)
        version = story.base()
        story.wait_live(version, everywhere=False)
        process.resume()
        story.wait_live(version)
        story.end(version)
