"""kill -9 of an agent at every step of a rollout: servers do not notice, and the agent goes on where the files say it
was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.story import Story


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_agent_killed_at_every_step_of_a_rollout(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2, count=200_000) as story:
        story.begin()
        version = 1
        for number, moment in enumerate(("idle", "building", "preparing", "activating") * 2):
            victim = story.cluster.instance(number // 2 % 2, number % 2)
            version = story.delta() if number % 2 else story.base()
            story.catch(moment, version)
            assert victim.agent is not None
            victim.agent.kill()
            time.sleep(0.3)
            victim.start_agent()
            story.wait_live(version)
        story.end(version)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_agent_killed_again_and_again_while_it_fetches(tmp_path: Path) -> None:
    """Each time more has arrived, and nothing incomplete is ever loaded."""
    with Story(tmp_path, shards=1, replicas=1, count=300_000) as story:
        story.begin()
        (instance,) = story.cluster.instances
        version = story.base()
        for delay_s in (0.0, 0.02, 0.05, 0.1):
            story.catch("preparing", version)
            time.sleep(delay_s)
            assert instance.agent is not None
            instance.agent.kill()
            instance.start_agent()
        story.wait_live(version)
        story.end(version)
