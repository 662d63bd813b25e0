"""The base under a chain of deltas is damaged or gone on a replica's disk: the replica is made whole again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.story import Story
from tests.cluster.truth import MODEL, TABLE


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192 + 5] ^= 4
    path.write_bytes(data)


def _base_under(data: Path, version: int) -> tuple[Path, int]:
    """The base's file, and how many deltas stand on it."""
    deltas = 0
    while parent := json.loads((data / MODEL / str(version) / "shard.json").read_text())["parent"]:
        version, deltas = parent, deltas + 1
    return data / MODEL / str(version) / f"{TABLE}.cube", deltas


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.promise(
    "The base under several deltas is damaged or missing on a replica's disk",
    "the agent reports what it verifiably holds, and transfer sends what the chain lacks",
)
def test_replica_with_a_damaged_base_under_deltas_heals(tmp_path: Path) -> None:
    harms: list[Callable[[Path], None]] = [_flip, Path.unlink]
    with Story(tmp_path, shards=1, replicas=1, count=1000) as story:
        story.begin(load=False)
        instance = story.cluster.instance(0, 0)
        for harm in harms:
            for _ in range(2):
                story.wait_live(story.delta())
            version = story.truth.newest
            base, deltas = _base_under(instance.data, version)
            assert deltas >= 2
            assert instance.server is not None
            instance.server.kill()
            harm(base)
            instance.start_server()
            story.wait_live(version)
            story.check_everywhere(version)
