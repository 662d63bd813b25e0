"""Reading a repository: the live version, garbage in a donefile, pins, chains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.unit.versions.synthetic import publish, row_values

from elasticctr.errors import ConfigError, Corruption, FailedPrecondition, NotFound
from elasticctr.versions import Repository
from elasticctr.versions.donefile import DonefileEvent, last_in_effect
from elasticctr.versions.manifest import parse_manifest
from elasticctr.versions.rollback import rollback
from elasticctr.versions.sparse import get_rows


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(str(tmp_path / "repo"))


def donefile(repository: Repository) -> Path:
    return Path(repository.url, "ctr", "donefile")


def test_an_empty_place_has_no_models(repository: Repository) -> None:
    assert repository.models() == [] and repository.events("ctr") == [] and repository.versions("ctr") == []
    with pytest.raises(NotFound, match="no published version"):
        repository.live("ctr")


def test_versions_events_and_files(repository: Repository) -> None:
    one = publish(repository, "ctr", 1, [1, 2, 3])
    two = publish(repository, "ctr", 2, [2, 9], [3], one)
    assert repository.models() == ["ctr"]
    assert [m.version for m in repository.versions("ctr")] == [1, 2]
    live = repository.live("ctr")
    assert (live.version, live.previous, live.manifest) == (2, 1, two)
    assert [(e.number, e.event, e.version, e.kind, e.parent) for e in repository.events("ctr")] == [
        (1, "publish", 1, "base", 0),
        (2, "publish", 2, "delta", 1),
    ]
    assert [e.version for e in repository.events("ctr", after=1)] == [2]
    assert [m.version for m in repository.chain("ctr", 2)] == [1, 2]
    assert json.loads(repository.read_file("ctr", 2, "metrics.json"))["valid"]["auc"] == 0.75
    with pytest.raises(NotFound, match="never published"):
        repository.manifest("ctr", 3)
    with pytest.raises(NotFound, match="lists no"):
        repository.read_file("ctr", 1, "nothing")


def test_a_chain_answers_with_its_newest_rows(repository: Repository) -> None:
    one = publish(repository, "ctr", 1, [1, 2, 3, 2**64 - 1])
    two = publish(repository, "ctr", 2, [2, 9], [3, 77], one)
    publish(repository, "ctr", 3, [3], [9], two)
    asked = np.array([9, 3, 2, 1, 2**64 - 1, 5, 2], dtype=np.uint64)
    rows, found = get_rows(repository, repository.chain("ctr", 3), "main", asked)
    assert found.tolist() == [False, True, True, True, True, False, True]
    for i, version in enumerate([0, 3, 2, 1, 1, 0, 2]):
        expected = row_values(version, asked[i : i + 1])[0] if version else np.zeros(3, np.float32)
        assert rows[i].tolist() == expected.tolist()


LINE = (
    '{"event": "publish", "version": %s, "kind": "base", "parent": 0, "base": 7, "manifest_sha256": "x", "time": 1}\n'
)
GARBAGE = [
    b"\n",
    b"   \n",
    b"{}\n",
    b"[1]\n",
    b"null\n",
    b"\xff\xfe\x00\n",
    b'{"event": "publish", "vers',
    b"not json\n",
]


@pytest.mark.parametrize(
    "garbage",
    [*GARBAGE, *((LINE % version).encode() for version in ('"7"', "7", "-7", "1", "null")), b"[" * 100_000 + b"\n"],
)
def test_garbage_in_the_donefile_is_passed_over(repository: Repository, garbage: bytes) -> None:
    one = publish(repository, "ctr", 1, [1])
    with donefile(repository).open("ab") as file:
        file.write(garbage)
    assert repository.live("ctr").version == 1 and [m.version for m in repository.versions("ctr")] == [1]
    publish(repository, "ctr", 2, [2], [], one)
    assert repository.live("ctr").version == 2 and repository.live("ctr").previous == 1
    assert donefile(repository).read_bytes().endswith(b"\n")
    rollback(repository, "ctr")
    assert repository.live("ctr").version == 1


def test_a_line_without_its_newline_is_not_there_yet(repository: Repository) -> None:
    one = publish(repository, "ctr", 1, [1])
    publish(repository, "ctr", 2, [2], [], one)
    path = donefile(repository)
    path.write_bytes(path.read_bytes()[:-1])
    assert repository.live("ctr").version == 1 and [e.version for e in repository.events("ctr")] == [1]


def test_only_the_announced_manifest_counts(repository: Repository) -> None:
    one = publish(repository, "ctr", 1, [1])
    publish(repository, "ctr", 2, [2], [], one)
    manifest = Path(repository.url, "ctr", "2", "manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 1', b'"rows": 2'))
    assert repository.live("ctr").version == 1
    with pytest.raises(Corruption, match="not the manifest that was announced"):
        repository.manifest("ctr", 2)
    manifest.unlink()
    assert [m.version for m in repository.versions("ctr")] == [1]
    with pytest.raises(NotFound, match="version 2 is gone"):
        repository.manifest("ctr", 2)


def test_rolling_back_and_forth(repository: Repository) -> None:
    one = publish(repository, "ctr", 1, [1])
    with pytest.raises(FailedPrecondition, match="the only one"):
        rollback(repository, "ctr")
    publish(repository, "ctr", 2, [2], [], one)
    publish(repository, "ctr", 3, [3])
    assert rollback(repository, "ctr").version == 2
    assert repository.live("ctr").version == 2 and repository.live("ctr").previous == 3
    assert rollback(repository, "ctr").version == 3
    assert rollback(repository, "ctr", 1).version == 1
    assert repository.events("ctr")[-1].event == "rollback"
    with pytest.raises(FailedPrecondition, match="already live"):
        rollback(repository, "ctr", 1)
    with pytest.raises(NotFound):
        rollback(repository, "ctr", 9)


def test_pins_last_until_they_expire(repository: Repository) -> None:
    publish(repository, "ctr", 1, [1])
    repository.pin("ctr", "server-1", [1, 2], ttl_s=60)
    repository.pin("ctr", "server-2", [1], ttl_s=60)
    repository.pin("ctr", "old", [5], ttl_s=-1)
    Path(repository.url, "ctr", "pins", "garbage.json").write_bytes(b"{")
    assert repository.pinned("ctr") == {1: ["server-1", "server-2"], 2: ["server-1"]}
    assert repository.read_pins("ctr")[1] == ["garbage.json"]
    repository.unpin("ctr", "server-1")
    assert repository.pinned("ctr") == {1: ["server-2"]}
    for name in ("../x", "", "a b", ".hidden"):
        with pytest.raises(ConfigError):
            repository.pin("ctr", name, [1], 1)
        with pytest.raises(ConfigError):
            repository.events(name)


def test_manifests_that_cannot_be(repository: Repository) -> None:
    publish(repository, "ctr", 1, [1])
    good = json.loads(Path(repository.url, "ctr", "1", "manifest.json").read_text())
    parse_manifest(json.dumps(good | {"new key": 1}).encode(), "x")
    change: dict[str, Any]
    for change in ({"version": 0}, {"kind": "delta"}, {"parent": 1}, {"tables": 3}, {"files": [{}]}, {"chain": [1]}):
        with pytest.raises(Corruption, match="x: not a manifest"):
            parse_manifest(json.dumps(good | change).encode(), "x")
    with pytest.raises(FailedPrecondition, match="format 2"):
        parse_manifest(json.dumps(good | {"format": 2}).encode(), "x")
    with pytest.raises(Corruption):
        parse_manifest(b"", "x")


def test_a_late_publish_has_no_effect_but_a_rollback_does() -> None:
    def event(number: int, kind: Literal["publish", "rollback"], version: int) -> DonefileEvent:
        return DonefileEvent(number, kind, version, "base", 0, version, "", 0.0)

    said = [event(1, "publish", 4), event(2, "publish", 3), event(3, "rollback", 2), event(4, "publish", 5)]
    assert [last_in_effect(said[:n]).number for n in (1, 2, 3, 4)] == [1, 1, 3, 4]
