"""Orders to prepare a version: what is asked is read, and what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import pytest

from elasticctr.cube.agent.request import MAX_CHAIN, Step, parse_prepare
from elasticctr.errors import DataError

DIGEST = "0123456789abcdef" * 4
ORDER: dict[str, Any] = {"model": "ctr", "version": 3, "shard": 0, "shards": 2, "source": "http://host/3"}


def step(version: Any, **more: Any) -> dict[str, Any]:
    return {"version": version, "source": f"http://host/{version}", **more}


def test_a_chain_is_read_oldest_first_with_the_version_last() -> None:
    found = parse_prepare(ORDER | {"chain": [step(1, sha256=DIGEST), step(2, parent_identity=DIGEST)]})
    assert (found.model, found.version, found.shard, found.shards) == ("ctr", 3, 0, 2)
    assert [one.version for one in found.steps] == [1, 2, 3]
    assert found.step(1) == Step(1, "http://host/1", DIGEST, None)
    assert found.step(2) == Step(2, "http://host/2", None, None, DIGEST)
    assert found.step(4) is None


def test_the_same_order_has_the_same_key() -> None:
    assert parse_prepare(ORDER).key == parse_prepare(dict(reversed(ORDER.items()))).key
    for change in ({"shard": 1}, {"source": "http://other/3"}, {"identity": DIGEST}, {"chain": [step(1)]}):
        assert parse_prepare(ORDER | change).key != parse_prepare(ORDER).key, change


def test_the_shard_may_be_left_to_the_agent() -> None:
    found = parse_prepare({key: value for key, value in ORDER.items() if not key.startswith("shard")})
    assert (found.shard, found.shards) == (None, None)


@pytest.mark.parametrize("version", [0, -1, 1 << 63, True, "3", 3.0, None])
def test_what_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(DataError):
        parse_prepare(ORDER | {"version": version})


@pytest.mark.parametrize(
    "change",
    [
        {"model": "../ctr"},
        {"model": None},
        {"source": None},
        {"shard": None},
        {"shards": None},
        {"shard": 2},
        {"shard": -1},
        {"shard": True},
        {"shards": 1 << 20},
        {"sha256": "abc"},
        {"identity": DIGEST.upper()},
        {"parent_identity": 5},
        {"chain": None},
        {"chain": {}},
        {"chain": ["1"]},
        {"chain": [step(3)]},
        {"chain": [step(4)]},
        {"chain": [step(2), step(1)]},
        {"chain": [step(1), step(1)]},
        {"chain": [{"version": 1}]},
        {"version": MAX_CHAIN + 9, "chain": [step(n) for n in range(1, MAX_CHAIN + 2)]},
    ],
    ids=lambda change: str(change)[:40],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        parse_prepare(ORDER | change)
