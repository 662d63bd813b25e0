"""A node of a Ray cluster is lost with its processes: its roles are placed on others, each sample counts once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import wait_until
from tests.cluster.training import Log, Training

pytest.importorskip("ray", reason="no Ray: pip install 'elasticctr[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A cluster of three nodes on this machine, and a head that takes no roles."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=4)
    yield cluster
    cluster.shutdown()


def test_a_node_of_a_ray_cluster_is_lost(nodes: Any, training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=11, epochs=4, checkpoint_s=0.5) as training:
        training.start("--on", "ray", "--ray-address", nodes.address)
        training.random_moment(0.1, 0.3)
        nodes.remove_node(training.random.choice(list(nodes.worker_nodes)), allow_graceful=False)
        wait_until(lambda: any(role["restarts"] for role in training.roles().values()), "a role placed again", 120)
        training.finish(400)
        training.check()
        lost = [name for name in training.roles() if training.restarts(name)]
        assert 1 <= len(lost) < 5, "SPREAD puts some of the five roles on each node"
