"""An agent prepares, activates and retires versions; damage and interruptions leave nothing half done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fakes import make_build
from tests.unit.cube.agent.conftest import Bench

from elasticctr.cube.agent.jobs import AgentJob
from elasticctr.cube.agent.request import parse_prepare
from elasticctr.errors import (
    AlreadyExists,
    Corruption,
    DataError,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unauthorized,
    Unavailable,
)


def prepare(bench: Bench, request: dict[str, Any], agent: Any = None) -> AgentJob:
    job: AgentJob = (agent or bench.agent).prepare(parse_prepare(request))
    assert job.finished.wait(60)
    if job.error is not None:
        raise job.error
    return job


def test_a_version_is_fetched_loaded_and_activated_and_the_files_are_the_built_ones(bench: Bench) -> None:
    make_build(bench.builds)
    job = prepare(bench, bench.request(1))
    assert job.describe()["bytes_done"] == job.describe()["bytes_total"] == 100_000
    built = bench.builds / "ctr/1/shard-0000-of-0002"
    for name in ("embedding.cube", "shard.json"):
        assert (bench.data / "ctr/1" / name).read_bytes() == (built / name).read_bytes()
    assert bench.server.active == {}
    assert bench.agent.activate("ctr", 1) == {"active": 1, "previous": 0}
    assert bench.agent.directory.live("ctr") == (1, 0)
    assert list((bench.data / ".incoming/ctr").iterdir()) == []


def test_preparing_again_fetches_nothing(bench: Bench) -> None:
    make_build(bench.builds)
    prepare(bench, bench.request(1))
    before = len(bench.host.requests)
    prepare(bench, bench.request(1))
    assert len(bench.host.requests) == before
    assert bench.server.calls == [("load", "ctr", 1)]


def test_a_chain_is_fetched_and_loaded_oldest_first(bench: Bench) -> None:
    for version, parent in ((1, 0), (2, 1), (3, 2)):
        make_build(bench.builds, version=version, parent=parent)
    prepare(bench, bench.request(3, 1, 2))
    assert bench.server.calls == [("load", "ctr", 1), ("load", "ctr", 2), ("load", "ctr", 3)]


def test_a_delta_on_a_resident_parent_needs_no_chain(bench: Bench) -> None:
    make_build(bench.builds)
    make_build(bench.builds, version=2, parent=1)
    prepare(bench, bench.request(1))
    prepare(bench, bench.request(2))
    assert bench.server.calls[-1] == ("load", "ctr", 2)


def test_a_delta_whose_parent_is_only_on_disk_loads_that_first(bench: Bench) -> None:
    make_build(bench.builds)
    make_build(bench.builds, version=2, parent=1)
    prepare(bench, bench.request(1))
    bench.server.restart_empty()
    prepare(bench, bench.request(2))
    assert bench.server.calls[-2:] == [("load", "ctr", 1), ("load", "ctr", 2)]


def test_a_delta_with_a_gap_is_refused_and_names_it(bench: Bench) -> None:
    make_build(bench.builds, version=5, parent=4)
    with pytest.raises(NotFound, match="depends on version 4"):
        prepare(bench, bench.request(5))


def test_a_swapped_shard_is_refused(bench: Bench) -> None:
    make_build(bench.builds)
    request = bench.request(1) | bench.step(1, shard=1)
    with pytest.raises(Corruption, match="received shard 1 of 2 instead of 0 of 2"):
        prepare(bench, request)
    assert bench.server.calls == []


def test_another_shard_than_the_agents_own_is_refused(bench: Bench) -> None:
    make_build(bench.builds)
    with pytest.raises(FailedPrecondition, match="this agent has shard 0 of 2"):
        bench.make_agent(shard=(0, 2)).prepare(parse_prepare(bench.request(1, shard=1)))


def test_another_version_than_announced_is_refused(bench: Bench) -> None:
    make_build(bench.builds)
    (bench.builds / "ctr/2").mkdir()
    shutil.copytree(bench.builds / "ctr/1/shard-0000-of-0002", bench.builds / "ctr/2/shard-0000-of-0002")
    with pytest.raises(Corruption, match="holds version 1 of ctr"):
        prepare(bench, bench.request(2))


def test_a_listing_other_than_announced_is_refused(bench: Bench) -> None:
    make_build(bench.builds)
    with pytest.raises(Corruption, match="another one than announced"):
        prepare(bench, bench.request(1) | {"sha256": "0" * 64})


def test_a_version_with_other_contents_is_refused_while_it_is_resident(bench: Bench) -> None:
    make_build(bench.builds)
    prepare(bench, bench.request(1))
    shutil.rmtree(bench.builds / "ctr")
    make_build(bench.builds, bytes_each=5000)
    with pytest.raises(AlreadyExists, match="other contents"):
        prepare(bench, bench.request(1))


def test_the_same_contents_built_otherwise_are_the_same_version(bench: Bench) -> None:
    make_build(bench.builds)
    make_build(bench.builds, version=2, parent=1)
    identity = {"identity": "ab" * 32}
    prepare(bench, bench.request(2, 1) | identity)
    shutil.rmtree(bench.builds / "ctr/2")
    make_build(bench.builds, version=2)
    before = len(bench.host.requests)
    prepare(bench, bench.request(2) | identity)
    assert len(bench.host.requests) == before


def test_damage_on_the_agents_disk_is_repaired_by_another_fetch(bench: Bench) -> None:
    make_build(bench.builds)
    bench.server.damage_next_load = True
    prepare(bench, bench.request(1))
    assert [call[0] for call in bench.server.calls] == ["load", "retire", "load"]


def test_a_version_its_server_refuses_stays_refused(bench: Bench) -> None:
    make_build(bench.builds)
    bench.server.refuse_loads = True
    with pytest.raises(Corruption, match="refused"):
        prepare(bench, bench.request(1))


def test_a_full_disk_is_reported_before_anything_is_fetched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    make_build(bench.builds)
    prepare(bench, bench.request(1))
    bench.agent.activate("ctr", 1)
    make_build(bench.builds, version=2)
    usage = shutil.disk_usage(bench.data)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InternalError, match="the disk is full"):
        prepare(bench, bench.request(2))
    assert not (bench.data / ".incoming/ctr/2").exists()
    assert bench.server.active == {"ctr": 1}


def test_a_server_restarted_empty_gets_back_what_live_says(bench: Bench) -> None:
    make_build(bench.builds)
    make_build(bench.builds, version=2, parent=1)
    prepare(bench, bench.request(1))
    bench.agent.activate("ctr", 1)
    prepare(bench, bench.request(2))
    bench.agent.activate("ctr", 2)
    assert bench.agent.restore() == []
    bench.server.restart_empty()
    [job] = bench.agent.restore()
    assert job.finished.wait(60) and job.error is None
    assert bench.server.active == {"ctr": 2}
    assert bench.server.models["ctr"][1]["state"] == "ready"


def test_retiring_keeps_the_files_a_kept_version_depends_on(bench: Bench) -> None:
    for version, parent in ((1, 0), (2, 1), (3, 0)):
        make_build(bench.builds, version=version, parent=parent)
        prepare(bench, bench.request(version))
        bench.agent.activate("ctr", version)
    assert bench.agent.retire("ctr", 1) == {"removed": []}
    assert bench.agent.directory.versions("ctr") == [1, 2, 3]
    make_build(bench.builds, version=4)
    prepare(bench, bench.request(4))
    bench.agent.activate("ctr", 4)
    assert bench.agent.retire("ctr", 2) == {"removed": [1, 2]}
    assert bench.agent.directory.versions("ctr") == [3, 4]
    assert sorted(bench.server.models["ctr"]) == [3, 4]


def test_retiring_clears_downloads_that_were_overtaken(bench: Bench) -> None:
    for version in (1, 3):
        make_build(bench.builds, version=version)
        prepare(bench, bench.request(version))
        bench.agent.activate("ctr", version)
    for version in (2, 4):
        (bench.data / f".incoming/ctr/{version}").mkdir(parents=True)
    bench.agent.retire("ctr", 1)
    assert [path.name for path in (bench.data / ".incoming/ctr").iterdir()] == ["4"]


def test_the_active_version_cannot_be_retired(bench: Bench) -> None:
    make_build(bench.builds)
    prepare(bench, bench.request(1))
    bench.agent.activate("ctr", 1)
    with pytest.raises(FailedPrecondition, match="active"):
        bench.agent.retire("ctr", 1)


def test_a_retired_version_can_come_back(bench: Bench) -> None:
    for version in (1, 2):
        make_build(bench.builds, version=version)
        prepare(bench, bench.request(version))
        bench.agent.activate("ctr", version)
    make_build(bench.builds, version=3)
    prepare(bench, bench.request(3))
    bench.agent.activate("ctr", 3)
    assert bench.agent.retire("ctr", 1) == {"removed": [1]}
    prepare(bench, bench.request(1))
    assert bench.agent.activate("ctr", 1)["active"] == 1


def test_what_was_not_prepared_cannot_be_activated(bench: Bench) -> None:
    with pytest.raises(NotFound, match="prepare it first"):
        bench.agent.activate("ctr", 9)


def test_one_job_per_model_and_the_same_request_joins_it(bench: Bench) -> None:
    make_build(bench.builds)
    make_build(bench.builds, version=2)
    bench.server.load_s = 60
    first = bench.agent.prepare(parse_prepare(bench.request(1)))
    assert bench.agent.prepare(parse_prepare(bench.request(1))) is first
    with pytest.raises(Unavailable, match="is being prepared; try again"):
        bench.agent.prepare(parse_prepare(bench.request(2)))
    bench.server.load_s = 0
    assert first.finished.wait(60) and first.error is None


def test_a_job_can_be_cancelled_and_ends_in_time(bench: Bench) -> None:
    make_build(bench.builds)
    bench.server.load_s = 60
    job = bench.agent.prepare(parse_prepare(bench.request(1)))
    while job.state != "loading":
        assert job.is_running
    assert bench.agent.jobs.cancel("ctr") == 1
    assert job.finished.wait(60) and isinstance(job.error, Unavailable)
    slow = bench.make_agent(job_timeout_s=0.2).prepare(parse_prepare(bench.request(1)))
    assert slow.finished.wait(60) and isinstance(slow.error, DeadlineExceeded)


def test_a_killed_download_resumes_where_it_was(bench: Bench) -> None:
    make_build(bench.builds, bytes_each=300_000)
    part = bench.data / ".incoming/ctr/1/embedding.cube.part"
    part.parent.mkdir(parents=True)
    part.write_bytes((bench.builds / "ctr/1/shard-0000-of-0002/embedding.cube").read_bytes()[:123_456])
    prepare(bench, bench.request(1))
    assert ("ctr/1/shard-0000-of-0002/embedding.cube", "bytes=123456-") in bench.host.requests


def test_files_can_come_straight_from_the_builds_location(bench: Bench) -> None:
    make_build(bench.builds)
    request = bench.request(1) | {"source": str(bench.builds / "ctr/1/shard-0000-of-0002")}
    prepare(bench, request)
    assert bench.host.requests == []
    assert bench.server.models["ctr"][1]["state"] == "ready"


@pytest.mark.parametrize(
    "body",
    [
        {"model": "../etc"},
        {"model": "a/b"},
        {"model": ""},
        {"model": "x" * 65},
        {"model": 5},
        {"version": 0},
        {"version": -1},
        {"version": "1; rm -rf /"},
        {"version": True},
        {"shard": 2},
        {"shard": -1},
        {"shards": 5000, "shard": 1},
        {"sha256": "xyz"},
        {"source": ["a"]},
        {"chain": "1"},
        {"chain": [{"version": 7, "source": "http://127.0.0.1"}]},
    ],
)
def test_hostile_requests_are_refused_before_anything_happens(bench: Bench, body: dict[str, Any]) -> None:
    make_build(bench.builds)
    with pytest.raises(DataError):
        bench.agent.prepare(parse_prepare(bench.request(1) | body))
    assert bench.host.requests == []


def test_hostile_names_in_a_listing_are_corruption(bench: Bench, tmp_path: Path) -> None:
    make_build(bench.builds)
    path = bench.builds / "ctr/1/shard-0000-of-0002/shard.json"
    for name in ("../../../escape.cube", "/etc/passwd", "a/b.cube", ".hidden.cube", "x.sh", "shard.json"):
        listing = json.loads(path.read_text())
        listing["files"][0]["name"] = name
        path.write_text(json.dumps(listing))
        with pytest.raises(Corruption, match="not a usable listing"):
            prepare(bench, bench.request(1))
    assert not list(tmp_path.rglob("*escape*"))


def test_a_source_that_is_not_allowed_is_refused(bench: Bench) -> None:
    make_build(bench.builds)
    with pytest.raises(Unauthorized, match="not an allowed source"):
        bench.agent.prepare(parse_prepare(bench.request(1) | {"source": "http://169.254.169.254/latest"}))
