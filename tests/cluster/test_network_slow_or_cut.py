"""A slow, silent or cut network, between clients and servers and between agents and transfer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.harness import TOKEN
from tests.cluster.load import Load
from tests.cluster.network import Network, why_not
from tests.cluster.proxy import Proxy
from tests.cluster.story import PATIENT, Story


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_lose_the_network_to_one_replica_of_each_shard(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2) as story:
        story.begin(load=False)
        proxies = [Proxy(story.cluster.instance(shard, 0).server_port) for shard in range(2)]
        shards = [
            [f"127.0.0.1:{proxies[s].port}", f"127.0.0.1:{story.cluster.instance(s, 1).server_port}"] for s in range(2)
        ]
        with Load(shards, TOKEN, count=len(story.truth.feasigns), client=PATIENT) as load:
            story.load = load
            load.define(1)
            load.start()
            for slow_s, silent, down in (
                (0.05, False, False),
                (0.0, True, False),
                (0.0, False, True),
                (0.0, False, False),
            ):
                for proxy in proxies:
                    proxy.delay_s, proxy.is_silent, proxy.is_down = slow_s, silent, down
                    if down:
                        proxy.cut()
                version = story.delta()
                story.wait_live(version)
                time.sleep(0.5)
            report = story.end(version)
            assert report.versions[-1] == version
        for proxy in proxies:
            proxy.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_downloads_are_slow_and_cut_again_and_again(tmp_path: Path) -> None:
    """Agents fetch from transfer through a bad line; what has arrived is kept, and the version arrives complete."""
    with Story(tmp_path, replicas=1, count=100_000) as story, Proxy(story.cluster.transfer_port) as proxy:
        story.cluster.settings["address"] = f"http://127.0.0.1:{proxy.port}"
        story.begin()
        proxy.delay_s, proxy.piece_bytes = 0.003, 16384
        version = story.base()
        story.catch("preparing", version)
        for _ in range(4):
            time.sleep(0.2)
            proxy.cut()
        proxy.is_silent = True
        time.sleep(1)
        proxy.is_silent = False
        proxy.cut()
        proxy.delay_s, proxy.piece_bytes = 0.0, 65536
        story.wait_live(version)
        story.end(version)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_replica_behind_a_slow_cable_that_is_pulled(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Network() as network, Story(tmp_path, replicas=2, count=20_000, require={"straggler_s": 1.0}) as story:
        distant = story.cluster.instance(0, 0)
        distant.host, distant.prefix = network.inside, network.prefix
        transfer = f"http://{network.outside}:{story.cluster.transfer_port}"
        story.cluster.settings["address"] = transfer
        for instance in story.cluster.instances:
            host = ["--host", instance.host]
            instance.start_server(*host)
            instance.start_agent(*host, "--allow-source", transfer)
        story.cluster.start_transfer("--host", "0.0.0.0")
        story.base()
        story.wait_live(1)
        story.start_load()
        network.slow("2mbit")
        version = story.base()
        story.wait_live(version)
        network.full_speed()
        network.pull()
        version = story.delta()
        story.wait_live(version, everywhere=False)
        time.sleep(2)
        network.plug()
        story.wait_live(version)
        story.end(version)
