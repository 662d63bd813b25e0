"""A requested version that is gone or never existed: NotFound, never another version's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import NotFound
from tests.cluster.harness import wait_until
from tests.cluster.story import FULL_NAME, Story


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_version_asked_for_that_is_gone(tmp_path: Path) -> None:
    with Story(tmp_path, resident=2) as story:
        story.begin()
        places = np.arange(500)
        with story.client() as client:
            assert story.truth.judge(places, client.get(FULL_NAME, story.truth.feasigns[places], version=1)).is_right
            for _ in range(3):
                version = story.base()
                story.wait_live(version)
                # The one before is still there for those who began with it.
                before = client.get(FULL_NAME, story.truth.feasigns[places], version=version - 1)
                assert before.version == version - 1
                assert story.truth.judge(places, before).is_right

            def is_gone() -> bool:
                try:
                    client.get(FULL_NAME, story.truth.feasigns[places], version=1)
                except NotFound:
                    return True
                return False

            wait_until(is_gone, "version 1 retired")
            with pytest.raises(NotFound):
                client.get(FULL_NAME, story.truth.feasigns[places], version=12345)
            answer = client.get(FULL_NAME, story.truth.feasigns[places])
            assert (answer.version, story.truth.judge(places, answer).is_right) == (4, True)
        story.end(4)
