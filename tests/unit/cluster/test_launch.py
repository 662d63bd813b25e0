"""A launch refuses what cannot run before it touches anything, and gives every role what it needs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from elasticctr.cluster.launch import (
    MOST_LOCAL_ROLES,
    begin,
    check_port,
    claim,
    count_roles,
    find_free_port,
    make_run_token,
    one_thread_per_cpu,
    share_threads,
)
from elasticctr.errors import ConfigError, ElasticCTRError, FailedPrecondition, NotFound, Unavailable
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job
from elasticctr.train.run_directory import RunDirectory


def make_job(tmp_path: Path, **sections: Any) -> Job:
    job = {
        "run_dir": str(tmp_path / "run"),
        "schema": {"slots": [{"name": "user"}]},
        "data": {"train": "log"},
        "model": {"name": "lr"},
    }
    return Job.model_validate(job | sections)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"trainers": 3, "pservers": 2}, 6),
        ({"trainers": 3, "pservers": 2, "standby": True}, 8),
        ({"trainers": 3, "strategy": "collective"}, 3),
    ],
)
def test_every_role_is_counted_and_made(tmp_path: Path, settings: dict[str, Any], count: int) -> None:
    assert count_roles(ClusterSettings.model_validate(settings)) == count
    launch = begin(make_job(tmp_path, cluster=settings), resume=False)
    is_collective = "strategy" in settings
    assert len(launch.roles) == (0 if is_collective else count)
    assert (launch.coordinator is None) == is_collective
    names = [role.name for role in launch.roles]
    assert len(set(names)) == len(names) and (is_collective or names[0] == "coordinator-0")
    assert launch.token and len(launch.token) >= 16


@pytest.mark.parametrize(
    ("sections", "options", "error"),
    [
        ({"cluster": {"trainers": MOST_LOCAL_ROLES}}, {}, ConfigError),
        ({"cluster": {"token_file": "nowhere"}}, {}, NotFound),
        ({"cluster": {}}, {"resume": True}, NotFound),
        ({"cluster": {}}, {"coordinator_port": 70_000}, ConfigError),
        ({"cluster": {"strategy": "collective"}, "publish": {"to": "repo", "model": "m"}}, {}, ConfigError),
    ],
    ids=["too many roles", "no token file", "nothing to resume", "no such port", "collective publishing"],
)
def test_what_cannot_run_touches_nothing(
    tmp_path: Path, sections: dict[str, Any], options: dict[str, Any], error: type[ElasticCTRError]
) -> None:
    with pytest.raises(error):
        begin(make_job(tmp_path, **sections), **({"resume": False} | options))
    assert list(tmp_path.iterdir()) == []


def test_many_roles_are_fine_on_many_machines(tmp_path: Path) -> None:
    job = make_job(tmp_path, cluster={"trainers": MOST_LOCAL_ROLES})
    assert len(begin(job, resume=False, is_one_machine=False).roles) > MOST_LOCAL_ROLES


def test_a_run_is_trained_by_one_launch_at_a_time(tmp_path: Path) -> None:
    job = make_job(tmp_path, cluster={})
    first = begin(job, resume=False)
    with pytest.raises(FailedPrecondition, match=str(os.getpid())):
        begin(job, resume=False)
    assert first.lock is not None
    first.lock.close()
    claim(RunDirectory(tmp_path / "run")).close()


def test_the_secret_of_a_run_stays_and_is_its_owners(tmp_path: Path) -> None:
    path = make_run_token(tmp_path)
    secret = path.read_text()
    assert make_run_token(tmp_path) == path and path.read_text() == secret
    assert path.stat().st_mode & 0o077 == 0


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    port = find_free_port("127.0.0.1")
    check_port("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable, match=str(taken.getsockname()[1])):
        check_port("127.0.0.1", taken.getsockname()[1])


def test_an_address_of_another_machine_cannot_be_listened_at() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        find_free_port("192.0.2.1")


def test_trainers_of_a_machine_share_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    job = make_job(tmp_path, cluster={"trainers": 3, "pservers": 1})
    roles = begin(job, resume=False).roles

    def threads(found: list[Any]) -> list[str]:
        return [role.environment["ELASTICCTR__TRAIN__THREADS"] for role in found if role.kind == "trainer"]

    assert threads(share_threads(job, roles)) == ["2"] * 3
    fixed = make_job(tmp_path, train={"threads": 5})
    assert threads(share_threads(fixed, roles)) == ["5"] * 3
    asked = one_thread_per_cpu(fixed, roles)
    assert threads(asked) == ["5"] * 3
    assert {role.cpus for role in asked if role.kind == "trainer"} == {5.0}
    assert [role.cpus for role in asked if role.kind != "trainer"] == [
        role.cpus for role in roles if role.kind != "trainer"
    ]
