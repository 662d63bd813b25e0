"""Checking a repository: each kind of damage is named, and a donefile is rebuilt from what exists."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.versions.synthetic import publish
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.versions import Repository
from elasticctr.versions.fsck import check_model, rebuild_donefile
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.removal import REMOVING, plan_removal, prune
from elasticctr.versions.rollback import rollback
from elasticctr.versions.writer import next_version


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """1 ← 2 ← 3, 4"""
    repository = Repository(str(tmp_path / "repo"))
    one = publish(repository, "ctr", 1, [1])
    two = publish(repository, "ctr", 2, [2], [], one)
    publish(repository, "ctr", 3, [3], [], two)
    publish(repository, "ctr", 4, [4])
    return repository


def place(repository: Repository, *parts: str) -> Path:
    return Path(repository.url, "ctr", *parts)


def kinds(repository: Repository, **options: Any) -> list[tuple[str, int, bool]]:
    return [(f.kind, f.version, f.is_broken) for f in check_model(repository, "ctr", **options)]


def call(*args: str, status: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["versions", "fsck", *args, "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_a_sound_repository(repository: Repository) -> None:
    assert kinds(repository, checksums=True) == []
    for path in Path(repository.url).rglob("*"):
        os.utime(path, (1, 1))
    rollback(repository, "ctr", 1)
    assert prune(repository, "ctr", 1).going == [2, 3]
    assert kinds(repository) == [] and rebuild_donefile(repository, "ctr") is None
    assert call(repository.url) == {"models": ["ctr"], "rebuilt": [], "findings": [], "is_whole": True}
    assert "nothing is broken" in CliRunner().invoke(app, ["versions", "fsck", repository.url]).stdout


def test_what_was_left_behind_is_told_and_breaks_nothing(repository: Repository) -> None:
    repository.store.write_bytes("ctr/5/schema.json", b"{}")
    repository.store.write_bytes(f"ctr/6/{REMOVING}", b"")
    repository.store.write_bytes("ctr/publisher.lock", b'{"expires": 1, "pid": 1}')
    with place(repository, "donefile").open("ab") as file:
        file.write(b"{")
    assert kinds(repository) == [
        ("line", 0, False),
        ("lock", 0, False),
        ("leftover", 5, False),
        ("leftover", 6, False),
    ]
    assert call(repository.url)["is_whole"]


def test_each_kind_of_damage_has_its_name(repository: Repository) -> None:
    part = place(repository, "3", "sparse/main/part-00000.arrow")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))
    assert kinds(repository) == [] and kinds(repository, checksums=True) == [("file", 3, True)]
    part.write_bytes(bytes(data[:-1]))
    assert kinds(repository) == [("file", 3, True)]
    part.unlink()
    assert kinds(repository) == [("file", 3, True)]
    manifest = place(repository, "1", "manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 1', b'"rows": 2'))
    chains = [("chain", 2, True), ("chain", 3, True)]
    assert kinds(repository) == [("manifest", 1, True), ("file", 3, True), *chains]
    manifest.unlink()
    place(repository, "4", "manifest.json").unlink()
    repository.store.write_bytes("ctr/pins/server.json", b"{")
    gaps = [("gap", 1, True), ("file", 3, True), ("gap", 4, True)]
    assert kinds(repository) == [("pin", 0, True), *gaps, *chains]
    repository.store.delete_tree("ctr/4")
    assert kinds(repository)[-1] == ("gap", 4, True)
    shown = CliRunner().invoke(app, ["versions", "fsck", repository.url])
    assert shown.exit_code == 14 and "depends on version 1" in shown.stdout
    assert call("/nowhere", status=12)["error"]["code"] == "NotFound"


@pytest.mark.promise(
    "the donefile is lost",
    "`elasticctr versions fsck --rebuild` makes it anew from the manifests, and publishing goes on",
)
def test_a_lost_donefile_is_rebuilt(repository: Repository) -> None:
    before = [(e.version, e.kind, e.parent, e.base, e.manifest_sha256) for e in repository.events("ctr")]
    place(repository, "donefile").unlink()
    with pytest.raises(FailedPrecondition, match=r"fsck .* --rebuild"):
        next_version(repository, "ctr")
    listed = CliRunner().invoke(app, ["versions", "list", repository.url, "--json"])
    assert listed.exit_code == 12 and "ctr lost its donefile: run elasticctr versions fsck" in listed.stdout
    told = call(repository.url, status=14)
    assert [(f["kind"], f["version"]) for f in told["findings"]] == [
        ("donefile", 0),
        *(("orphan", v) for v in range(1, 5)),
    ]
    told = call(repository.url, "--rebuild")
    assert told["rebuilt"] == [{"model": "ctr", "kept": 0, "added": [1, 2, 3, 4], "dropped": 0, "aside": ""}]
    assert [(e.version, e.kind, e.parent, e.base, e.manifest_sha256) for e in repository.events("ctr")] == before
    assert repository.live("ctr").version == 4 and next_version(repository, "ctr") == 5


@pytest.mark.promise(
    "a line of the donefile is damaged",
    "`elasticctr versions fsck --rebuild` keeps the good lines and the old file, and mends it",
)
def test_a_damaged_line_is_repaired(repository: Repository) -> None:
    rollback(repository, "ctr", 2)
    path = place(repository, "donefile")
    good = path.read_bytes()
    events = repository.events("ctr")
    bad = good.replace(b'"version": 1,', b'"version": 7,', 1)
    path.write_bytes(bad + b"half a li")
    assert kinds(repository)[0] == ("line", 0, True)
    with pytest.raises(FailedPrecondition):
        plan_removal(repository, "ctr", 1)
    done = rebuild_donefile(repository, "ctr")
    assert done is not None and (done.kept, done.added, done.dropped) == (4, (1,), 1)
    assert Path(done.aside).read_bytes() == bad + b"half a li"
    assert "donefile.damaged-" in done.aside
    assert kinds(repository) == [] and repository.live("ctr").version == 2
    assert [(e.event, e.version) for e in repository.events("ctr")] == [(e.event, e.version) for e in events]
    assert path.read_bytes().splitlines()[1:] == good.splitlines()[1:]
    plan_removal(repository, "ctr", 1)


def test_only_whole_versions_are_announced_again(repository: Repository) -> None:
    place(repository, "donefile").unlink()
    place(repository, "2", "metrics.json").unlink()
    repository.store.write_bytes("ctr/5/manifest.json", b"{}")
    repository.store.write_bytes(f"ctr/4/{REMOVING}", b"")
    done = rebuild_donefile(repository, "ctr")
    assert done is not None and done.added == (1,)
    assert repository.live("ctr").version == 1
    assert ("orphan", 2, True) in kinds(repository)


def test_a_change_of_equal_length_is_seen_by_its_size(repository: Repository) -> None:
    path = place(repository, "donefile")
    size = len(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b'"version": 4,', b'"version": 5,', 1))
    rebuild_donefile(repository, "ctr")
    assert len(path.read_bytes()) != size and repository.live("ctr").version == 4


def test_publishing_is_refused_while_a_donefile_is_rebuilt(repository: Repository) -> None:
    place(repository, "donefile").unlink()
    with PublisherLease(repository.store, "ctr"), pytest.raises(Unavailable, match="is publishing"):
        rebuild_donefile(repository, "ctr")
