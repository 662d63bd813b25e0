"""Activation without sockets: what the fleet passes to the native server in every situation."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harm import BAD, no_graph, wrong_scores
from tests.cluster.scored import Scored
from tests.cluster.truth import announce

from elasticctr.cube.directory import read_version
from elasticctr.errors import ConfigError, FailedPrecondition, NotFound
from elasticctr.serve.activation import loading
from elasticctr.serve.activation.fleet import ModelFleet, _find_previous
from elasticctr.serve.activation.version_cache import VersionCache
from elasticctr.serve.server import NativeModel
from elasticctr.serve.settings import ServeSettings
from elasticctr.versions.repository import Repository

WAIT_S = 60.0


class Desk:
    """A fleet, and what it passed on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scored = Scored(Repository(str(root / "repo")), count=300)
        self.handed: list[list[NativeModel]] = []
        self.ready: tuple[bool, str] = (False, "")
        self.fleet: ModelFleet | None = None

    def start(self, **model: Any) -> ModelFleet:
        common = {"name": "ctr", "repo": str(self.root / "repo"), "index_dir": str(self.root / "index"), "poll_s": 0.02}
        settings = ServeSettings.model_validate({"port": 0, "models": [common | model]})
        self.fleet = ModelFleet(settings, self.handed.append, lambda *ready: setattr(self, "ready", ready))
        self.fleet.start()
        return self.fleet

    def stop(self) -> None:
        if self.fleet is not None:
            self.fleet.stop()
            for watcher in self.fleet._watchers.values():
                watcher._loader.cache.close()
        self.fleet = None

    def status(self) -> dict[str, Any]:
        assert self.fleet is not None
        return self.fleet.model_status("ctr")

    def wait(self, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            status = self.status()
            if check(status):
                return status
            time.sleep(0.005)
        raise AssertionError(f"not within {WAIT_S} s: {json.dumps(self.status(), indent=1)}")

    def wait_live(self, version: int) -> dict[str, Any]:
        return self.wait(lambda status: status["live"] == version)

    def wait_refused(self, version: int) -> str:
        status = self.wait(lambda status: any(one["version"] == version for one in status["refused"]))
        return next(f"{one['code']}: {one['reason']}" for one in status["refused"] if one["version"] == version)

    def shares(self) -> dict[str, tuple[int, float, bool]]:
        """The last state passed on: variant → version, weight, shadow."""
        return {name: (one.version, weight, shadow) for name, weight, shadow, one in self.handed[-1][0][4]}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.stop()


def test_bases_and_deltas_go_live_and_only_deltas_are_indexed(desk: Desk) -> None:
    desk.start()
    assert [(one[0], one[-1]) for one in desk.handed[-1]] == [("ctr", [])], "known, and without a version"
    assert desk.ready[0] is False
    desk.scored.base()
    desk.wait_live(1)
    assert desk.ready == (True, "")
    desk.scored.delta()
    desk.scored.delta()
    status = desk.wait_live(3)
    assert desk.shares() == {"live": (3, 1.0, False)}
    assert [one["samples"] for one in status["ready"]] == [24] * len(status["ready"])
    assert all(one["split"] and one["why_whole"] is None for one in status["ready"])
    assert (desk.root / "index" / "ctr" / "1" / "build.json").exists(), "what 3 stands on stays"
    desk.scored.base()
    desk.wait_live(4)
    desk.scored.base()
    desk.wait_live(5)
    desk.wait(lambda _: not (desk.root / "index" / "ctr" / "1").exists())
    assert [one["version"] for one in desk.status()["ready"]] == [4, 5]
    desk.wait(lambda _: set(desk.scored.repository.pinned("ctr")) == {4, 5})


def test_a_version_is_served_whole_if_its_first_layer_cannot_be_shared(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticctr.serve.activation.loading.check_shared", lambda *given: "samples would differ")
    desk.start()
    desk.scored.base()
    (ready,) = desk.wait_live(1)["ready"]
    assert (ready["split"], ready["why_whole"]) == (False, "samples would differ")


def test_bad_versions_are_refused_and_the_live_one_stays(desk: Desk) -> None:
    scored = desk.scored
    desk.start()
    scored.base()
    desk.wait_live(1)
    for what, change, harm, reason in BAD:
        bad = scored.publish(scored.define(1), change, is_announced=False)
        harm(desk.root / "repo" / "ctr" / str(bad))
        announce(scored.repository, bad)
        told = desk.wait_refused(bad)
        assert re.match(reason, told), f"{what}: {told}"
        assert (desk.status()["live"], desk.ready) == (1, (True, "")), what
        refused = desk.status()["refused"][-1]
        assert (refused["retry_at"] is None) == (what != "no schema file")
    time.sleep(0.1)
    tried = desk.status()["refused"]
    assert [one["version"] for one in tried] == list(range(2, 2 + len(BAD)))
    assert {one["attempts"] for one in tried if one["retry_at"] is None} == {1}, "nothing changed: none is tried again"
    scored.publish(scored.define(1))
    desk.wait_live(2 + len(BAD))
    assert desk.status()["previous"] == 1


@pytest.mark.parametrize(
    ("history", "live", "previous"),
    [((1, 11), 11, 1), ((1,), 11, 1), ((1, 11), 1, None), ((1,), 1, None), ((1, 2), None, 1), ((), 3, None)],
    ids=["settled", "just after a switch", "just after a rollback", "first", "not back yet", "just after the first"],
)
def test_the_previously_served_version_is_known_at_any_moment(
    history: tuple[int, ...], live: int | None, previous: int | None
) -> None:
    assert _find_previous(history, live) == previous


def test_activating_in_vain_changes_nothing(desk: Desk) -> None:
    scored, fleet = desk.scored, desk.start()
    for version in (1, 2):
        scored.base()
        desk.wait_live(version)
    scored.publish(scored.define(), no_graph, is_announced=False)
    with pytest.raises(NotFound, match="never published"):
        fleet.activate("ctr", 3)
    announce(scored.repository, 3)
    desk.wait_refused(3)
    scored.base()
    desk.wait_live(4)
    fleet.rollback("ctr")
    status = desk.wait_live(2)
    fleet.activate("ctr", 3)
    desk.wait(lambda status: status["loading"] is None and bool(status["refused"]) and status["held"] != 3)
    status = desk.status()
    assert (status["live"], status["held"]) == (2, 2)


def test_a_delta_reads_nothing_but_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def note(directory: Path) -> Any:
        read.append(int(directory.name))
        return read_version(directory)

    monkeypatch.setattr(loading, "read_version", note)
    desk.start()
    desk.scored.base()
    desk.wait_live(1)
    for version in (2, 3, 4):
        desk.scored.delta()
        desk.wait_live(version)
    assert read == [1, 2, 3, 4]
    assert [one["version"] for one in desk.status()["ready"]][-1] == 4


def test_servers_of_one_user_keep_their_files_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (VersionCache.open_default("/some/repo", "ctr", "ctr-8500") for _ in range(2))
    other = VersionCache.open_default("/another/repo", "ctr", "ctr-8500")
    assert len({first.root, second.root, other.root}) == 3
    place = first.root
    for cache in (first, second, other):
        cache.close()
    again = VersionCache.open_default("/some/repo", "ctr", "ctr-8500")
    assert again.root == place, "a restart finds its own"
    again.close()


def test_with_nothing_live_the_newest_good_version_is_served(desk: Desk) -> None:
    desk.scored.base()
    desk.scored.publish(desk.scored.define(1), wrong_scores)
    desk.scored.publish(desk.scored.define(1), no_graph)
    desk.start()
    desk.wait_live(1)
    assert {one["version"] for one in desk.status()["refused"]} == {2, 3}


def test_rollbacks_of_people_hold_and_those_of_the_donefile_are_followed(desk: Desk) -> None:
    scored, fleet = desk.scored, desk.start()
    with pytest.raises(FailedPrecondition, match="no version was served before"):
        fleet.rollback("ctr")
    scored.base()
    desk.wait_live(1)
    scored.base()
    desk.wait_live(2)
    answer = fleet.rollback("ctr")
    assert (answer["live"], answer["held"], answer["announced"]) == (1, 1, 2), "instant"
    scored.base()
    desk.wait(lambda status: status["announced"] == 3)
    assert desk.status()["live"] == 1
    fleet.resume("ctr")
    desk.wait_live(3)
    assert desk.status()["previous"] == 1
    scored.rollback(2)
    desk.wait_live(2)
    assert fleet.activate("ctr", 2)["held"] is None, "what the donefile says needs no holding"
    scored.base()
    desk.wait_live(4)


def test_pause_and_activation_by_hand_survive_a_restart(desk: Desk) -> None:
    scored, fleet = desk.scored, desk.start()
    for version in (1, 2):
        scored.base()
        desk.wait_live(version)
    fleet.activate("ctr", 1)
    fleet.set_variants("ctr", [{"name": "b", "version": 2, "weight": 0.25}], "user_id")
    fleet.pause("ctr")
    desk.stop()
    scored.base()
    shutil.move(desk.root / "repo", desk.root / "away")
    desk.start()
    status = desk.wait_live(1)
    assert desk.ready == (True, ""), "what was served needs no repository"
    assert (status["held"], status["paused"], status["sticky"]) == (1, True, "user_id")
    shutil.move(desk.root / "away", desk.root / "repo")
    desk.wait(lambda status: status["variants"][0]["serving"])
    assert desk.shares() == {"live": (1, 0.75, False), "b": (2, 0.25, False)}
    assert desk.handed[-1][0][1] == "user_id"
    assert desk.fleet is not None
    desk.fleet.resume("ctr")
    desk.wait_live(3)


def test_a_repository_that_is_gone_for_a_while_changes_nothing(desk: Desk) -> None:
    desk.scored.base()
    desk.start()
    desk.wait_live(1)
    shutil.move(desk.root / "repo", desk.root / "away")
    desk.wait(lambda status: status["repository_error"] is not None)
    assert (desk.status()["live"], desk.ready) == (1, (True, ""))
    shutil.move(desk.root / "away", desk.root / "repo")
    desk.scored.delta()
    desk.wait_live(2)
    assert desk.status()["repository_error"] is None


def test_a_recreated_repository_has_other_versions_under_the_same_numbers(desk: Desk) -> None:
    desk.scored.base()
    desk.start()
    desk.wait_live(1)
    other = Scored(Repository(str(desk.root / "other")), count=300, seed=5)
    other.base()
    other.delta()
    shutil.move(desk.root / "repo", desk.root / "old")
    shutil.move(desk.root / "other", desk.root / "repo")
    desk.wait_live(2)
    assert desk.status()["refused"] == [], "its delta does not stand on index files of the old base"


def test_variants_share_are_promoted_and_end(desk: Desk) -> None:
    scored, fleet = desk.scored, desk.start()
    scored.base()
    desk.wait_live(1)
    fleet.pause("ctr")
    scored.delta()
    scored.publish(scored.define(1), no_graph)
    fleet.set_variants(
        "ctr",
        [
            {"name": "b", "version": 2, "weight": 0.3},
            {"name": "broken", "version": 3, "weight": 0.2},
            {"name": "dark", "version": 2, "weight": 0.5, "shadow": True},
        ],
        None,
    )
    desk.wait(lambda status: status["variants"][0]["serving"] and bool(status["refused"]))
    shares: dict[str, Any] = desk.shares()
    assert shares["live"] == (1, pytest.approx(0.7), False), "and what the broken one would have had"
    assert (shares["b"], shares["dark"]) == ((2, 0.3, False), (2, 0.5, True))
    assert [one["serving"] for one in desk.status()["variants"]] == [True, False, True]
    with pytest.raises(FailedPrecondition, match="not ready"):
        fleet.promote("ctr", "broken")
    with pytest.raises(NotFound, match="no variant 'x'"):
        fleet.promote("ctr", "x")
    status = fleet.promote("ctr", "b")
    assert (status["live"], status["held"], status["variants"]) == (2, 2, [])
    assert desk.shares() == {"live": (2, 1.0, False)}


@pytest.mark.parametrize(
    "variants",
    [
        [{"name": "b"}],
        [{"name": "b", "version": 1, "wieght": 1}],
        [{"name": "b", "version": 1, "weight": 2}],
        [{"name": "b", "model": "nobody"}],
        [{"name": "b", "version": 1, "weight": 0.1}, {"name": "b", "version": 1, "weight": 0.1}],
        ["b"],
    ],
)
def test_wrong_variants_are_reported(desk: Desk, variants: list[Any]) -> None:
    with pytest.raises(ConfigError):
        desk.start().set_variants("ctr", variants, None)


def test_damaged_index_files_are_rebuilt(desk: Desk) -> None:
    desk.scored.base()
    desk.start()
    desk.wait_live(1)
    desk.stop()
    path = next((desk.root / "index" / "ctr" / "1").rglob("*.cube"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    desk.start()
    desk.wait_live(1)
    assert desk.status()["refused"] == []


def test_a_directory_is_one_servers(desk: Desk) -> None:
    desk.start()
    with pytest.raises(FailedPrecondition, match="another server"):
        Desk(desk.root).start()


def test_reload_meta_says_when(desk: Desk) -> None:
    meta = desk.root / "meta"
    meta.write_text("first")
    desk.scored.base()
    desk.start(reload_meta=meta)
    desk.wait_live(1)
    desk.scored.delta()
    time.sleep(0.15)
    assert desk.status()["live"] == 1
    desk.stop()
    desk.start(reload_meta=meta)
    desk.wait_live(1)
    time.sleep(0.15)
    assert desk.status()["live"] == 1, "a restart is no change"
    meta.write_text("now")
    desk.wait_live(2)
