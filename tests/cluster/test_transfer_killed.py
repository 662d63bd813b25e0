"""kill -9 of transfer at every step of a rollout: servers do not notice, and its successor continues with that step."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.story import Story


def kill_at(story: Story, moment: str, *, is_base: bool = False) -> int:
    """Publishes, kills transfer when it is seen in that state, and starts another one."""
    version = story.base() if is_base else story.delta()
    story.catch(moment, version)
    assert story.cluster.transfer is not None
    story.cluster.transfer.kill()
    active = {one.active() for one in story.cluster.instances}
    assert active <= {version, version - 1}
    story.cluster.start_transfer()
    return version


@pytest.mark.timeout(300)
def test_transfer_killed_at_each_step_resumes(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=1, count=50_000) as story:
        story.begin(load=False)
        version = 1
        for moment in ("building", "preparing", "activating"):
            version = kill_at(story, moment)
            story.wait_live(version)
        story.check_everywhere(version)
        history = story.cluster.ask(story.cluster.transfer_url, "/v1/history")["models"][0]["history"]
        assert [one["version"] for one in history if one["outcome"] == "done"] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_transfer_killed_at_every_step_under_load(tmp_path: Path) -> None:
    """Large versions are built in a separate process; one that lost its transfer does no harm."""
    with Story(tmp_path, replicas=2, count=100_000, build={"in_process_rows": 20_000}) as story:
        story.begin()
        version = 1
        for number, moment in enumerate(("building", "preparing", "activating", "idle") * 2):
            version = kill_at(story, moment, is_base=number % 3 == 0)
            if number % 2:
                story.wait_live(version)
        story.wait_live(version)
        story.end(version)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_transfer_killed_between_a_rollback_and_its_end(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2) as story:
        story.begin()
        story.wait_live(story.delta())
        for target in (1, 2, 1):
            story.cluster.ask(story.cluster.transfer_url, "/v1/rollback", {"model": "ctr"})
            time.sleep(0.05)
            assert story.cluster.transfer is not None
            story.cluster.transfer.kill()
            story.cluster.start_transfer()
            story.wait_live(target)
        story.end(1)
