"""The agent's HTTP interface: its routes, its token and the bodies it refuses."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from tests.cluster.fakes import TOKEN, make_build
from tests.unit.cube.agent.conftest import Bench

from elasticctr.errors import DataError, FailedPrecondition, NotFound, Unauthorized
from elasticctr.net.client import Peer


def wait_ready(bench: Bench) -> None:
    deadline_s = time.monotonic() + 60
    while True:
        [job] = bench.peer.get("/v1/jobs")["jobs"]
        if job["state"] == "ready":
            return
        assert job["state"] != "failed" and time.monotonic() < deadline_s, job
        time.sleep(0.02)


def test_prepare_activate_status_and_retire_over_http(bench: Bench) -> None:
    make_build(bench.builds)
    assert bench.peer.post("/v1/prepare", bench.request(1))["version"] == 1
    wait_ready(bench)
    assert bench.peer.post("/v1/activate", {"model": "ctr", "version": 1}) == {"active": 1, "previous": 0}
    status = bench.peer.get("/v1/status")
    assert status["server"]["reachable"]
    [model] = status["models"]
    assert (model["name"], model["active"]) == ("ctr", 1)
    assert model["versions"][0]["state"] == "ready" and model["versions"][0]["stored"]
    with pytest.raises(FailedPrecondition, match="active"):
        bench.peer.post("/v1/retire", {"model": "ctr", "version": 1})


def test_nothing_but_health_is_answered_without_the_token(bench: Bench) -> None:
    assert httpx.get(f"{bench.serving.url}/healthz", timeout=60).text == "ok\n"
    for path in ("/v1/status", "/metrics", "/agent/status", "/v1/jobs", "/nothing"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            assert httpx.get(bench.serving.url + path, headers=headers, timeout=60).status_code == 401
    with pytest.raises(Unauthorized):
        Peer(bench.serving.url, "wrong token").post("/v1/activate", {"model": "ctr", "version": 1})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'"x"', b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_object_is_refused(bench: Bench, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("/v1/prepare", "/v1/activate", "/v1/lease", "/agent/cmd"):
        answer = httpx.post(bench.serving.url + path, content=body, headers=headers, timeout=60)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "DataError"


def test_a_body_without_end_is_cut(bench: Bench) -> None:
    answer = httpx.post(
        f"{bench.serving.url}/v1/prepare",
        content=b" " * (2 << 20),
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
    )
    assert answer.status_code == 413


def test_an_unknown_path_has_the_one_error_shape(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.peer.get("/v2/status")


def test_the_lease_keeps_other_transfers_out_until_it_runs_out(bench: Bench) -> None:
    make_build(bench.builds)
    first = {"owner": "one", "epoch": 3}
    assert bench.peer.post("/v1/lease", first | {"ttl_s": 30})["epoch"] == 3
    with pytest.raises(FailedPrecondition, match="transfer 'one' holds the lease"):
        bench.peer.post("/v1/lease", {"owner": "two", "epoch": 4, "ttl_s": 30})
    with pytest.raises(FailedPrecondition, match="take the lease again"):
        bench.peer.post("/v1/prepare", bench.request(1) | {"lease": {"owner": "two", "epoch": 4}})
    with pytest.raises(FailedPrecondition, match="holds the lease"):
        bench.peer.post("/v1/prepare", bench.request(1))
    bench.peer.post("/v1/prepare", bench.request(1) | {"lease": first})
    bench.peer.post("/v1/release", {"owner": "two"})
    bench.peer.post("/v1/release", {"owner": "one"})
    bench.peer.post("/v1/lease", {"owner": "two", "epoch": 4, "ttl_s": 30})
    wait_ready(bench)
    with pytest.raises(FailedPrecondition, match="was granted epoch 4"):
        bench.peer.post("/v1/activate", {"model": "ctr", "version": 1, "lease": first})
    assert bench.server.active == {}


def test_a_restarted_agent_still_knows_the_highest_epoch(bench: Bench) -> None:
    bench.peer.post("/v1/lease", {"owner": "one", "epoch": 7, "ttl_s": 30})
    lease = bench.make_agent().lease
    assert (lease.owner, lease.epoch, lease.left_s) == ("one", 7, 0.0)
    with pytest.raises(FailedPrecondition, match="granted epoch 7"):
        lease.take("two", 6, 10)
    assert lease.take("two", 8, 10)["epoch"] == 8


@pytest.mark.parametrize(
    "body",
    [{}, {"owner": "", "epoch": 1, "ttl_s": 1}, {"owner": "a", "epoch": 0, "ttl_s": 1}]
    + [{"owner": "a", "epoch": 1, "ttl_s": ttl} for ttl in (0, -1, 1e9, None, True)],
)
def test_a_lease_that_is_none_is_refused(bench: Bench, body: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        bench.peer.post("/v1/lease", body)


def test_metrics_name_what_is_served(bench: Bench) -> None:
    make_build(bench.builds)
    bench.peer.post("/v1/prepare", bench.request(1))
    wait_ready(bench)
    bench.peer.post("/v1/activate", {"model": "ctr", "version": 1})
    text = httpx.get(f"{bench.serving.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60).text
    assert 'cube_agent_active_version{model="ctr"} 1.0' in text
    assert "cube_agent_server_up 1.0" in text
    assert "cube_agent_fetched_bytes_total 100000.0" in text


def command(bench: Bench, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = httpx.post(
        f"{bench.serving.url}/agent/cmd",
        content=json.dumps(body),
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
    )
    return answer.status_code, answer.json()


def test_paddles_transfer_downloads_reloads_and_enables(bench: Bench) -> None:
    make_build(bench.builds)
    source = f"{bench.host.url}/ctr/1/shard-0000-of-0002"
    asked = {"dict_name": "ctr", "version": "1", "depend": "1", "mode": "base", "shard_seq": 0, "deploy_path": "/tmp"}
    assert command(bench, command="download", source=source, **asked)[1]["success"] == "0"
    assert command(bench, command="reload", **asked)[1]["data"]["bg_version"] == "1"
    assert command(bench, command="enable", **asked) == (
        200,
        {"success": "0", "message": "", "data": {"active": 1, "previous": 0}},
    )
    assert command(bench, command="check", dict_name="ctr")[1]["data"]["cur_version"] == "1"
    status = bench.peer.get("/agent/status")
    assert status["data"] == {"status": "RUNNING", "version": "3.0.0.1"}


@pytest.mark.parametrize(
    "change",
    [
        {"command": "download; reboot"},
        {"dict_name": "ctr; rm -rf /"},
        {"dict_name": "../../etc"},
        {"version": "1 && id"},
        {"source": "http://127.0.0.1/$(id)"},
        {"source": "ftp://127.0.0.1/x"},
        {"source": "http://user:password@127.0.0.1/x"},
        {"source": "file:///etc/../etc/passwd"},
    ],
)
def test_a_request_of_paddles_transfer_never_becomes_a_command_or_a_path(bench: Bench, change: dict[str, Any]) -> None:
    make_build(bench.builds)
    asked = {"command": "download", "dict_name": "ctr", "version": "1", "source": f"{bench.host.url}/x", "port": "1;id"}
    status, answer = command(bench, **(asked | change))
    assert (status, answer["success"]) == (400, "2")
    assert bench.host.requests == []


def test_paddles_transfer_is_told_of_a_failure(bench: Bench) -> None:
    status, answer = command(bench, command="enable", dict_name="ctr", version=5)
    assert (status, answer["success"]) == (500, "255")
    assert answer["message"].startswith("NotFound")
    status, answer = command(bench, command="download", dict_name="ctr", version=1, source="http://10.0.0.1/x")
    assert (status, answer["success"]) == (500, "255") and "not an allowed source" in answer["message"]
