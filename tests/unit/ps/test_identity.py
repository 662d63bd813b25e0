"""The identity of a job: the same in every role, another for every change that matters."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from elasticctr.ps.identity import build, describe_difference, job_identity
from elasticctr.train.job import Job


def make_job(**more: Any) -> Job:
    settings: dict[str, Any] = {
        "schema": {"slots": [{"name": "user"}]},
        "data": {"train": "log"},
        "model": {"name": "dnn", "dim": 4},
        "cluster": {"strategy": "async"},
    }
    return Job.model_validate(settings | more)


def test_the_number_is_the_start_of_the_digest() -> None:
    identity = job_identity(make_job())
    assert identity.digest == hashlib.sha256(identity.text.encode()).hexdigest()
    assert identity.number.to_bytes(8, "little").hex() == identity.digest[:16]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("schema", {"schema": {"slots": [{"name": "ad"}]}}),
        ("options", {"model": {"name": "dnn", "dim": 8}}),
        ("tables", {"sparse": {"optimizer": {"name": "sgd"}}}),
        ("dense", {"dense": {"optimizer": "sgd"}}),
        ("strategy", {"cluster": {"strategy": "sync"}}),
        ("seed", {"train": {"seed": 1}}),
        ("batch_size", {"train": {"batch_size": 7}}),
    ],
)
def test_another_job_is_told_by_the_part_that_differs(part: str, change: dict[str, Any]) -> None:
    own, other = job_identity(make_job()), job_identity(make_job(**change))
    assert own.number != other.number
    assert describe_difference(own.text, other.text).startswith(f"{part}: ")


def test_places_and_counts_do_not_matter() -> None:
    elsewhere = make_job(run_dir="elsewhere", cluster={"strategy": "async", "trainers": 7}, data={"train": "other"})
    assert job_identity(elsewhere) == job_identity(make_job())


def test_differences_of_nonsense_are_a_sentence() -> None:
    assert describe_difference("{}", "[]") == "one of them is not the identity of a job"
    assert describe_difference("{}", "{}") == "nothing"
    assert json.loads(job_identity(make_job()).text)["model"] == "dnn"


def test_the_build_names_version_and_wire() -> None:
    version, _, wire = build().partition("+wire")
    assert version.count(".") == 2
    assert int(wire) >= 1
