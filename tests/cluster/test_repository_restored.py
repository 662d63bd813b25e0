"""A repository that was restored or recreated has other versions under known numbers: the Cube serves those."""

from __future__ import annotations

import copy
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.errors import Unavailable
from tests.cluster.harness import wait_until
from tests.cluster.story import FULL_NAME, Story
from tests.cluster.truth import Truth


def _begin_anew(story: Story, since: int) -> None:
    """From this version on, another history."""
    truth = copy.deepcopy(story.truth)
    truth._seed += 100
    for version in [one for one in truth.writers if one > since]:
        del truth.writers[version], truth.parents[version]
    story.truth = truth


def _wait_right(story: Story, version: int) -> None:
    """Waits until every replica has every row of the version as published now, and transfer says so."""

    def is_right() -> bool:
        places = np.arange(len(story.truth.feasigns))
        for replica in range(story.cluster.replicas):
            with story.client([[replicas[replica]] for replicas in story.addresses()]) as client:
                answer = client.get(FULL_NAME, story.truth.feasigns)
                if answer.version != version or not story.truth.judge(places, answer).is_right:
                    return False
        status = story.cluster.status()
        return bool(status["live"] == version and not status["behind"])

    wait_until(is_right, f"the rows of the new version {version} everywhere", 90, 0.2)


@contextmanager
def _reading(story: Story, *truths: Truth) -> Iterator[None]:
    """Reads all rows all the time: each answer is from one history, or a refusal."""
    places = np.arange(len(story.truth.feasigns))
    over, mixed, whole = threading.Event(), list[Any](), list[Any]()

    def read() -> None:
        with story.client() as client:
            while not over.is_set():
                try:
                    answer = client.get(FULL_NAME, story.truth.feasigns, timeout_s=0.5)
                except Unavailable:
                    continue
                is_whole = any(truth.judge(places, answer).is_right for truth in truths)
                (whole if is_whole else mixed).append(answer.version)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert whole and not mixed


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.promise(
    "The repository is restored from a backup, and versions are published anew under the same numbers",
    "every replica serves the new rows: a build, a file and a loaded version are known by identity, not by number",
)
def test_republished_versions_replace_those_of_the_same_number(tmp_path: Path) -> None:
    with Story(tmp_path, shards=2, replicas=2, count=1000) as story:
        story.begin(load=False)
        story.delta()
        model = story.cluster.repository / story.cluster.model
        shutil.copytree(model, tmp_path / "backup")
        for _ in range(3):
            story.wait_live(story.delta())
        old = story.truth
        assert story.cluster.transfer is not None
        story.cluster.transfer.pause()  # it sees nothing of it until all is there again
        shutil.rmtree(model)
        shutil.copytree(tmp_path / "backup", model)
        _begin_anew(story, 2)
        for _ in range(3):
            story.delta()
        assert any((old.writers[5] != story.truth.writers[5]).tolist())
        with _reading(story, old, story.truth):
            story.cluster.transfer.resume()
            _wait_right(story, 5)
        story.wait_live(story.delta())
        _wait_right(story, 6)

        # What the disk has is the same: a server started again reads it.
        for instance in story.cluster.instances:
            assert instance.server is not None
            instance.server.kill()
            instance.start_server()
        _wait_right(story, 6)

        # Not one version in common.
        shutil.rmtree(model)
        _begin_anew(story, 0)
        story.base()
        story.delta()
        _wait_right(story, 2)
