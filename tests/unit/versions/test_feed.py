"""Transfer reads the donefile: the wanted version, its chain, and lines it skips."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.truth import MODEL, Truth, publish

from elasticctr.errors import NotFound
from elasticctr.versions import Repository
from elasticctr.versions.feed import RepositoryFeed


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(str(tmp_path))


@pytest.fixture
def truth(repository: Repository) -> Truth:
    made = Truth(count=200)
    for version, parent in ((1, 0), (2, 1), (3, 2)):
        made.define(version, parent)
        publish(repository, made, version)
    assert np.unique(made.feasigns).size > 100
    return made


def append(tmp_path: Path, data: bytes) -> None:
    with (tmp_path / MODEL / "donefile").open("ab") as file:
        file.write(data)


def event(tmp_path: Path, version: int, kind: str) -> bytes:
    for line in (tmp_path / MODEL / "donefile").read_bytes().splitlines():
        found = json.loads(line)
        if found["version"] == version:
            found.pop("crc")  # a line without one is read, too
            return json.dumps(found | {"event": kind}).encode() + b"\n"
    raise AssertionError(version)


def test_nothing_published_is_nothing(tmp_path: Path) -> None:
    assert RepositoryFeed(str(tmp_path)).wanted(MODEL) is None


def test_the_last_version_and_its_chain(tmp_path: Path, truth: Truth) -> None:
    feed = RepositoryFeed(str(tmp_path))
    wanted = feed.wanted(MODEL)
    assert wanted is not None and (wanted.version, wanted.is_rollback) == (3, False)
    links = feed.chain(MODEL, 3)
    assert [(link.version, link.parent) for link in links] == [(1, 0), (2, 1), (3, 2)]
    assert links[-1].identity == wanted.identity
    written, gone = truth.changes(3)
    assert links[-1].rows == len(written) + len(gone)


@pytest.mark.parametrize(
    "rest", [b"\n\n", b"garbage\n", b'{"event": "publish"}\n', b"\xff\xfe\n", b"{" * 5000 + b"\n", b'{"event": "pub']
)
def test_garbage_blank_and_unfinished_lines_are_passed_over(tmp_path: Path, truth: Truth, rest: bytes) -> None:
    feed = RepositoryFeed(str(tmp_path))
    before = feed.wanted(MODEL)
    append(tmp_path, rest)
    after = feed.wanted(MODEL)
    assert after == before


def test_an_unfinished_line_counts_once_it_is_finished(tmp_path: Path, truth: Truth) -> None:
    feed = RepositoryFeed(str(tmp_path))
    line = event(tmp_path, 1, "rollback")
    append(tmp_path, line[:20])
    wanted = feed.wanted(MODEL)
    assert wanted is not None and wanted.version == 3
    append(tmp_path, line[20:])
    wanted = feed.wanted(MODEL)
    assert wanted is not None and (wanted.version, wanted.is_rollback) == (1, True)


def test_an_announcement_out_of_order_turns_nobody_back(tmp_path: Path, truth: Truth) -> None:
    feed = RepositoryFeed(str(tmp_path))
    append(tmp_path, event(tmp_path, 2, "publish"))
    wanted = feed.wanted(MODEL)
    assert wanted is not None and wanted.version == 3


def test_after_a_rollback_the_next_publish_counts(tmp_path: Path, repository: Repository, truth: Truth) -> None:
    feed = RepositoryFeed(str(tmp_path))
    append(tmp_path, event(tmp_path, 1, "rollback"))
    truth.define(4, 3)
    publish(repository, truth, 4)
    wanted = feed.wanted(MODEL)
    assert wanted is not None and wanted.version == 4


def test_a_line_whose_manifest_is_not_there_is_passed_over_until_it_is(tmp_path: Path, truth: Truth) -> None:
    manifest = tmp_path / MODEL / "3/manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data.replace(b"delta", b"fresh"))
    feed = RepositoryFeed(str(tmp_path))
    wanted = feed.wanted(MODEL)
    assert wanted is not None and wanted.version == 2
    manifest.write_bytes(data)
    for _ in range(10):
        wanted = feed.wanted(MODEL)
    assert wanted is not None and wanted.version == 3


def test_a_gap_in_a_chain_is_named(tmp_path: Path, truth: Truth) -> None:
    (tmp_path / MODEL / "2/manifest.json").unlink()
    with pytest.raises(NotFound, match="version 2"):
        RepositoryFeed(str(tmp_path)).chain(MODEL, 3)


def test_pins_are_in_the_repository(tmp_path: Path, repository: Repository, truth: Truth) -> None:
    RepositoryFeed(str(tmp_path)).pin(MODEL, "transfer-x", [2, 3], 60)
    assert repository.pinned(MODEL) == {2: ["transfer-x"], 3: ["transfer-x"]}
