"""A shard that is down for the whole rollout: no other shard switches without it, and once it is back, all do."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import DeadlineExceeded, Unavailable
from tests.cluster.story import FULL_NAME, Story


def test_shard_down_for_the_whole_rollout(tmp_path: Path) -> None:
    patience = {"first_pause_s": 0.2, "longest_pause_s": 1.0}
    with Story(tmp_path, replicas=1, patience=patience) as story:
        story.begin(load=False)
        down = story.cluster.instance(1, 0)
        for process in (down.server, down.agent):
            assert process is not None
            process.kill()
        version = story.delta()
        owners = np.array([_native.shard_of(int(f), 2) for f in story.truth.feasigns])
        answerable, lost = np.flatnonzero(owners == 0)[:200], np.flatnonzero(owners == 1)[:200]
        with story.client() as client:
            # A lookup that needs the lost shard says so; one that does not is answered, from the old version.
            with pytest.raises((Unavailable, DeadlineExceeded), match="shard 1"):
                client.get(FULL_NAME, story.truth.feasigns[lost])
            until = time.monotonic() + 3
            while time.monotonic() < until:
                answer = client.get(FULL_NAME, story.truth.feasigns[answerable])
                assert answer.version == 1
                assert story.truth.judge(answerable, answer).is_right
        assert story.cluster.status()["live"] == 1
        down.start_server()
        down.start_agent()
        story.wait_live(version)
        story.check_everywhere(version)
