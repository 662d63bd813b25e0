"""Names from the network become paths only if they cannot lead anywhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticctr.cube.shared.names import (
    check_digest,
    check_file,
    check_model,
    may_be_same,
    parse_shard_directory,
    shard_directory,
)
from elasticctr.errors import DataError

BAD_NAMES = ["", ".", "..", "../x", "a/b", "/a", ".hidden", "-flag", "a b", "a\n", "a\0", "ä", "a" * 200, None, 3, b"a"]


@pytest.mark.parametrize("check", [check_model, check_file])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_lead_elsewhere_are_refused(check: Callable[[object], str], name: object) -> None:
    with pytest.raises(DataError):
        check(name)


def test_plain_names_are_taken() -> None:
    for name in ("ctr", "_x", "ctr-v2.1", "0", "a" * 64):
        assert check_model(name) == check_file(name) == name
    with pytest.raises(DataError):
        check_model("a" * 65)
    assert check_file("a" * 80)


@pytest.mark.parametrize("digest", ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", None])
def test_what_is_no_digest_is_refused(digest: object) -> None:
    with pytest.raises(DataError):
        check_digest(digest)


def test_a_shards_directory_is_read_back() -> None:
    assert check_digest("0123456789abcdef" * 4)
    for shard, shards in ((0, 1), (3, 4), (4095, 4096)):
        assert parse_shard_directory(shard_directory(shard, shards)) == (shard, shards)


@pytest.mark.parametrize(
    "name", ["shard-0002-of-0002", "shard-0000-of-0000", "shard-0-of-1", "shard-0000-of-0002/x", "shard-0000-of-4097"]
)
def test_what_is_no_shards_directory_is_refused(name: str) -> None:
    with pytest.raises(DataError):
        parse_shard_directory(name)


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("a", "a", True), ("a", "b", False), (None, "b", True), ("a", "", True)]
)
def test_an_unknown_identity_is_never_found_to_differ(one: str | None, other: str | None, expected: bool) -> None:
    assert may_be_same(one, other) is may_be_same(other, one) is expected
