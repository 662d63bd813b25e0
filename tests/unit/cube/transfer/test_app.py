"""Transfer's HTTP interface: status, files with ranges, its token and orders it refuses."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.cluster.fakes import TOKEN
from tests.unit.cube.transfer.conftest import Bed
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.cube.transfer.process import TransferProcess
from elasticctr.errors import DataError, FailedPrecondition, NotFound

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def process(bed: Bed) -> TransferProcess:
    made, rollout = bed.transfer()
    for version in (1, 2):
        bed.feed.publish(version, parent=version - 1)
        rollout.turn()
    assert bed.active() == [2] * 4
    return made


def test_status_instances_and_history(bed: Bed, process: TransferProcess) -> None:
    peer = bed.peer(process)
    status = peer.get("/v1/status")
    [model] = status["models"]
    assert (model["name"], model["state"], model["live"], model["previous"]) == ("ctr", "idle", 2, 1)
    assert status["leading"] and status["usable"] == 4 and model["behind"] == []
    instances = peer.get("/v1/instances")["instances"]
    assert [(one["shard"], one["replica"], one["state"], one["active"]) for one in instances] == [
        (0, 0, "live", 2),
        (0, 1, "live", 2),
        (1, 0, "live", 2),
        (1, 1, "live", 2),
    ]
    [entry] = peer.get("/v1/history?model=ctr")["models"]
    assert [(one["version"], one["outcome"], one["kind"]) for one in entry["history"]] == [
        (1, "done", "base"),
        (2, "done", "delta"),
    ]


def test_nothing_but_health_is_answered_without_the_token(process: TransferProcess) -> None:
    assert httpx.get(f"{process.address}/healthz", timeout=60).status_code == 200
    for path in ("/v1/status", "/dict/info", "/metrics", "/v1/files/published/ctr/1/shard-0000-of-0002/shard.json"):
        assert httpx.get(process.address + path, timeout=60).status_code == 401
        assert httpx.get(process.address + path, headers={"Authorization": "Bearer no"}, timeout=60).status_code == 401
    for path in ("/v1/rollback", "/v1/pause"):
        assert httpx.post(process.address + path, json={}, timeout=60).status_code == 401


def test_files_are_served_with_ranges_and_nothing_else_is(process: TransferProcess) -> None:
    folder = process.builds.folder("ctr", 1, "published") / "shard-0001-of-0002"
    url = f"{process.address}/v1/files/published/ctr/1/shard-0001-of-0002"
    data = (folder / "embedding.cube").read_bytes()
    assert httpx.get(f"{url}/embedding.cube", headers=AUTHORIZED, timeout=60).content == data
    part = httpx.get(f"{url}/embedding.cube", headers=AUTHORIZED | {"Range": "bytes=1000-"}, timeout=60)
    assert (part.status_code, part.content) == (206, data[1000:])
    beyond = httpx.get(f"{url}/embedding.cube", headers=AUTHORIZED | {"Range": f"bytes={len(data)}-"}, timeout=60)
    assert beyond.status_code == 416
    root = f"{process.address}/v1/files"
    for path in (
        "published/ctr/1/..%2f..%2fbuild.json/x",
        "published/ctr/1/shard-0001-of-0002/..%2f..%2f..%2f..%2f..%2fowner",
        "published/..%2f..%2f/1/shard-0001-of-0002/shard.json",
        "published/ctr/1/shard-0009-of-0002/shard.json",
        "published/ctr/99999999999999999999/shard-0001-of-0002/shard.json",
        "published/ctr/1/shard-0001-of-0002/.hidden.json",
        "published/ctr/1/shard-0001-of-0002/absent.cube",
        "elsewhere/ctr/1/shard-0001-of-0002/shard.json",
        "published/ctr/¹/shard-0001-of-0002/shard.json",
    ):
        assert httpx.get(f"{root}/{path}", headers=AUTHORIZED, timeout=60).status_code in (400, 404), path


def test_orders_that_make_no_sense_are_refused(bed: Bed, process: TransferProcess) -> None:
    peer = bed.peer(process)
    with pytest.raises(NotFound, match="no model 'other'"):
        peer.post("/v1/rollback", {"model": "other"})
    with pytest.raises(DataError):
        peer.post("/v1/rollout", {"model": "ctr", "version": "latest"})
    with pytest.raises(DataError):
        peer.post("/v1/rollout", {"model": "../x", "version": 1})
    process.models["ctr"].journal.previous = 0
    with pytest.raises(FailedPrecondition, match="no version was live before"):
        peer.post("/v1/rollback", {"model": "ctr"})


def test_paddles_tools_read_the_status(bed: Bed, process: TransferProcess) -> None:
    peer = bed.peer(process)
    info = peer.get("/dict/info")
    assert info["success"] == "0"
    data = info["data"]
    assert (data["dict_name"], data["shard_num"], data["copy_num"], data["inst_num"]) == ("ctr", 2, 2, 4)
    assert (data["download_inst"], data["reload_insts"], data["enable_insts"]) == (4, 4, 4)
    assert [one["version"] for one in data["current_version_info"]] == [1, 2]
    assert data["wait_version_info"]["status"] == 0
    [first, *_] = peer.get("/instance/status")["data"]
    assert (first["shard"], first["status_id"], first["agent_ip"]) == (0, 100, "127.0.0.1")
    assert first["source"].endswith("/published/ctr/2/shard-0000-of-0002")
    history = peer.get("/dict/deploy/history")["data"]
    assert [(one["version"], one["depend"], one["mode"], one["status"]) for one in history] == [
        (1, 1, "base", 90),
        (2, 1, "delta", 90),
    ]


def test_metrics_name_what_is_live(process: TransferProcess) -> None:
    text = httpx.get(f"{process.address}/metrics", headers=AUTHORIZED, timeout=60).text
    assert 'cube_transfer_live_version{model="ctr"} 2.0' in text
    assert 'cube_transfer_rollouts_total{model="ctr",outcome="done"} 2.0' in text
    assert "cube_transfer_usable_instances 4.0" in text


def test_the_status_command_shows_every_replica(bed: Bed, process: TransferProcess) -> None:
    arguments = ["cube", "status", "--endpoint", process.address, "--token-file", str(bed.root / "token")]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("\tlive\t2\t") == 4
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert told["all_live"] and len(told["replicas"]) == 4
    bed.servers[0].is_down = True
    process.fleet.instances[0].refresh(5)
    assert CliRunner().invoke(app, arguments).exit_code == 15
