"""kill -9 of a cube server at every step of a rollout: the other replica answers, the restarted one serves the
live version, and the rollout completes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.story import Story


def kill_and_restart(story: Story, moments: tuple[str, ...]) -> None:
    version = 1
    for number, moment in enumerate(moments):
        victim = story.cluster.instance(number % 2, number // 2 % 2)
        version = story.base() if number % 2 else story.delta()
        story.catch(moment, version)
        assert victim.server is not None
        victim.server.kill()
        time.sleep(0.3)
        victim.start_server()
        story.wait_live(version)
    report = story.end(version)
    assert report.versions[-1] == version


def test_server_killed_while_a_version_is_prepared(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2, count=20_000) as story:
        story.begin()
        kill_and_restart(story, ("preparing",))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_server_killed_at_every_step_of_a_rollout(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2, count=200_000) as story:
        story.begin()
        kill_and_restart(story, ("idle", "building", "preparing", "activating") * 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_servers_killed_at_once(tmp_path: Path) -> None:
    """Nothing acknowledged is lost: they restart with the version that was live."""
    with Story(tmp_path, replicas=2) as story:
        story.begin(load=False)
        version = story.delta()
        story.wait_live(version)
        for instance in story.cluster.instances:
            assert instance.server is not None
            instance.server.kill()
        for instance in story.cluster.instances:
            instance.start_server()
        story.wait_live(version)
        story.check_everywhere(version)
