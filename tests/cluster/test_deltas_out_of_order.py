"""Deltas with a gap, twice, or out of order: a server takes a delta only on top of its parent, and answers only from
complete versions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticctr.cube.build.builds import build_version
from elasticctr.versions.repository import Repository
from tests.cluster.single import check_not_loadable, check_version
from tests.cluster.story import Story
from tests.cluster.truth import MODEL, Truth, announce, publish
from tests.process.cube.serving import ServerProcess


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    """Base 1, deltas 2, 3, 4 on it and 5 on 2, all built."""
    truth, repository = Truth(), Repository(str(tmp_path / "repo"))
    for version, parent in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 2)):
        truth.define(version, parent)
        publish(repository, truth, version)
        build_version(repository, MODEL, version, tmp_path / "data")
    return truth


def test_a_gap_is_refused_until_it_is_filled(tmp_path: Path, truth: Truth) -> None:
    hidden = tmp_path / "hidden"
    (tmp_path / "data" / MODEL / "2").rename(hidden)
    with ServerProcess(tmp_path / "data") as server:
        server.activate(1)
        assert "version 2" in check_not_loadable(server, 3)
        check_version(server, truth, 1)
        hidden.rename(tmp_path / "data" / MODEL / "2")
        server.activate(2)
        server.activate(3)
        check_version(server, truth, 3)


def test_twice_and_out_of_order(tmp_path: Path, truth: Truth) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.activate(1)
        server.activate(2)
        assert server.load(2)["state"] == "ready"
        server.activate(2)
        check_version(server, truth, 2)
        # Another branch from 2, then back to the first: each answers as itself.
        for version in (5, 3, 4, 5, 4):
            server.activate(version)
            check_version(server, truth, version)
        # A step back and forward again.
        server.activate(1)
        check_version(server, truth, 1)
        server.activate(4)
        check_version(server, truth, 4)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_announced_with_a_gap_out_of_order_and_twice(tmp_path: Path) -> None:
    """A delta whose parent has not been announced is served once it has been."""
    patience = {"first_pause_s": 0.2, "longest_pause_s": 0.5}
    with Story(tmp_path, patience=patience) as story:
        story.begin()
        second = story.delta(announce=False)
        third = story.delta(second)
        time.sleep(2)
        story.check_everywhere(1)
        # The missing one comes late: it fills the gap, and is no reason to step back.
        announce(story.repository, second)
        story.wait_live(third)
        announce(story.repository, third)
        announce(story.repository, third)
        fourth = story.delta(third)
        story.wait_live(fourth)
        story.end(fourth)
