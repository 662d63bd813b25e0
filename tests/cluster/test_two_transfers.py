"""Two transfers at once: on one state directory the second does not start; over the same agents it stands by."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import START_S, free_port, wait_until
from tests.cluster.story import Story

LEASE: dict[str, Any] = {"patience": {"lease_s": 4.0, "check_s": 0.5, "call_s": 3.0}}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_second_stands_by_and_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=1, **LEASE) as story:
        story.begin(load=False)
        cluster = story.cluster
        first = cluster.transfer
        assert first is not None

        same = cluster.run("same-state", ["cube", "transfer", "--config", str(cluster.write_config()), "--port", "0"])
        wait_until(lambda: not same.is_running, "the second on one state directory ends", START_S)
        assert same.exit_status == 15
        assert "another transfer uses this directory" in same.text()

        config = cluster.write_config("second.yaml", state=str(tmp_path / "second"))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        second = cluster.run("second", ["cube", "transfer", "--config", str(config), "--port", str(port)])
        wait_until(lambda: cluster.answers(second, url), "second transfer", START_S)
        wait_until(lambda: not cluster.ask(url, "/v1/status")["leading"], "the second stands by")
        version = story.delta()
        story.wait_live(version)
        assert cluster.ask(url, "/v1/status")["models"][0]["live"] == 0

        first.kill()
        version = story.delta()
        wait_until(lambda: cluster.ask(url, "/v1/status")["models"][0]["live"] == version, "taken over", 180)
        story.check_everywhere(version)

        # The first returns to its own state and finds the agents taken.
        cluster.start_transfer()
        wait_until(lambda: not cluster.ask(cluster.transfer_url, "/v1/status")["leading"], "the first stands by now")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_transfer_that_hung_is_fenced_off(tmp_path: Path) -> None:
    with Story(tmp_path, replicas=2, **LEASE) as story:
        story.begin()
        cluster = story.cluster
        assert cluster.transfer is not None
        story.base()
        story.catch("preparing", 2)
        cluster.transfer.pause()
        config = cluster.write_config("second.yaml", state=str(tmp_path / "second"))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        second = cluster.run("second", ["cube", "transfer", "--config", str(config), "--port", str(port)])
        wait_until(lambda: cluster.answers(second, url), "second transfer", START_S)
        version = story.base()
        wait_until(lambda: cluster.ask(url, "/v1/status")["models"][0]["live"] == version, "taken over", 180)
        cluster.transfer.resume()
        wait_until(lambda: not cluster.ask(cluster.transfer_url, "/v1/status")["leading"], "the first stands by")
        time.sleep(2)  # in which it could do harm
        assert not cluster.ask(cluster.transfer_url, "/v1/status")["leading"]
        assert {one.active() for one in cluster.instances} == {version}
        story.end(version)
