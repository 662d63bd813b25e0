"""A build is made once, and made again if it is damaged or incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fakes import make_build

from elasticctr.cube.transfer.builder import run_builder
from elasticctr.cube.transfer.builds import FORMS, Builds
from elasticctr.errors import ConfigError, Corruption, DeadlineExceeded, NotFound
from elasticctr.obs.watch import Watch
from elasticctr.versions.feed import Link, join_links

LINK = Link(3, 2, "ab" * 32, 10)
# Of a base and a delta: the first, another delta, another base under that.
IDENTITIES = [("01" * 32, "ab" * 32), ("01" * 32, "cd" * 32), ("02" * 32, "cd" * 32)]


class Builder:
    def __init__(self) -> None:
        self.calls = 0
        self.fails = False
        self.version = 3

    def build(self, model: str, link: Link, out: Path, *, compact: bool, watch: Any) -> None:
        self.calls += 1
        make_build(out, model, self.version, parent=0 if compact else 2, bytes_each=1000)
        if self.fails:
            raise Corruption("half way")


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def builds(tmp_path: Path, builder: Builder) -> Builds:
    return Builds(tmp_path, builder, 2)


def test_a_build_is_made_once(builds: Builds, builder: Builder) -> None:
    step = builds.ensure("ctr", LINK, "published", Watch(5))
    assert (step["version"], step["kind"], step["parent"], step["identity"]) == (3, "delta", 2, LINK.identity)
    assert len(step["sha256"]) == 2
    assert builds.ensure("ctr", LINK, "published", Watch(5)) == step
    assert builder.calls == 1
    assert builds.ensure("ctr", LINK, "compacted", Watch(5))["kind"] == "base"


def test_a_failed_build_leaves_nothing(builds: Builds, builder: Builder, tmp_path: Path) -> None:
    builder.fails = True
    with pytest.raises(Corruption):
        builds.ensure("ctr", LINK, "published", Watch(5))
    assert builds.find("ctr", LINK, "published") is None
    assert not list(tmp_path.rglob("*.cube"))
    builder.fails = False
    assert builds.ensure("ctr", LINK, "published", Watch(5))["version"] == 3


def test_a_build_of_something_else_is_refused(builds: Builds, builder: Builder) -> None:
    builder.version = 4
    with pytest.raises(NotFound):
        builds.ensure("ctr", LINK, "published", Watch(5))


@pytest.mark.parametrize("name", ["build.json", "shard-0001-of-0002/shard.json", "shard-0000-of-0002/embedding.cube"])
def test_a_damaged_build_is_made_again(builds: Builds, builder: Builder, name: str) -> None:
    builds.ensure("ctr", LINK, "published", Watch(5))
    path = builds.folder("ctr", 3, "published") / name
    path.write_bytes(path.read_bytes()[:-5])
    assert builds.find("ctr", LINK, "published") is None
    builds.ensure("ctr", LINK, "published", Watch(5))
    assert builder.calls == 2


def test_pruning_keeps_what_is_named(builds: Builds) -> None:
    builds.ensure("ctr", LINK, "published", Watch(5))
    builds.ensure("ctr", LINK, "compacted", Watch(5))
    assert builds.prune("ctr", {3}) == []
    assert sorted(builds.prune("ctr", {4})) == ["compacted/3", "published/3"]
    assert builds.versions("ctr") == []


def test_the_builders_own_error_comes_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a published version"):
        run_builder(["cube", "build", str(tmp_path / "none"), "--out", str(tmp_path), "--json"], Watch(60))


def test_a_build_process_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded):
        run_builder(["cube", "build", str(tmp_path), "--out", str(tmp_path), "--json"], Watch(0.05))


@pytest.mark.promise(
    "Transfer's disk has a build of the same number from another version",
    "a build is found by the identities of the version and its chain, or made again",
)
def test_a_build_of_another_version_of_the_same_number_is_made_again(builds: Builds, builder: Builder) -> None:
    old, new, above = (join_links([Link(2, 0, base, 1), Link(3, 2, top, 1)])[-1] for base, top in IDENTITIES)
    for form in FORMS:
        builds.ensure("ctr", old, form, Watch(5))
        for count, other in enumerate((new, above), 2):
            assert builds.find("ctr", other, form) is None
            assert builds.ensure("ctr", other, form, Watch(5))["identity"] == other.identity
            assert builder.calls == count
        builder.calls = 0
