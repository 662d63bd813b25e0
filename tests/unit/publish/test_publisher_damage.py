"""Damaged files are found, and a damaged donefile removes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.publish.story import Story, make_old

from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.publish import dense as dense_side
from elasticctr.versions.fsck import rebuild_donefile
from elasticctr.versions.verification import verify_version


def test_verify_finds_a_flip_in_every_file(story: Story) -> None:
    story.learn()
    story.publish()
    story.learn()
    story.learner.sparse.tables[0].evict(min_score=2.0)
    manifest = story.publish()
    assert any("gone" in file.name for file in manifest.files)
    root = Path(story.repository.url, "ctr")
    for version in (1, 2):
        for path in sorted(p for p in (root / str(version)).rglob("*") if p.is_file()):
            good = path.read_bytes()
            for place in (0, len(good) // 2, len(good) - 1):
                bad = bytearray(good)
                bad[place] ^= 0x10
                path.write_bytes(bytes(bad))
                with pytest.raises(Corruption, match=path.name):
                    verify_version(story.repository, "ctr", 2)
            path.write_bytes(good[:-1])
            with pytest.raises(Corruption):
                verify_version(story.repository, "ctr", 2)
            path.write_bytes(good)
    (root / "1" / "samples.json").unlink()
    with pytest.raises(Corruption, match="in the manifest but missing"):
        verify_version(story.repository, "ctr", 1)


@pytest.mark.promise(
    "the donefile is lost, then a version is published",
    "publish refuses, removes nothing and names `elasticctr versions fsck --rebuild`; afterwards it works again",
)
def test_publishing_without_the_donefile_is_refused(story: Story) -> None:
    for _ in range(3):
        story.learn(1)
        story.publish()
    place = Path(story.repository.url, "ctr")
    make_old(place)
    (place / "donefile").unlink()
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    story.learn(1)
    with pytest.raises(FailedPrecondition, match=r"no donefile.*elasticctr versions fsck .* --rebuild"):
        story.publish()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    rebuild_donefile(story.repository, "ctr")
    assert story.publish().chain == (1, 2, 3) and story.published(4) == story.trained()


@pytest.mark.promise(
    "line 1 of the donefile has a flipped byte, then a version is published with --keep 1",
    "the base that the others depend on stays; publishing warns and names `elasticctr versions fsck`",
)
def test_publishing_with_a_damaged_line_removes_nothing(
    story: Story, template: dense_side.GraphTemplate, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        story.learn(1)
        story.publish()
    place = Path(story.repository.url, "ctr")
    make_old(place)
    donefile = place / "donefile"
    donefile.write_bytes(donefile.read_bytes().replace(b'"version": 1,', b'"version": 0,', 1))
    story.learn(1)
    assert story.publish(publisher=story.make_publisher(template, keep=1)).version == 4
    told = capsys.readouterr().err.replace("\n", " ")
    assert "nothing is removed" in told and "elasticctr versions fsck" in told
    assert [path.name for path in sorted(place.iterdir()) if path.name.isdigit()] == ["1", "2", "3", "4"]
    rebuild_donefile(story.repository, "ctr")
    assert len(story.repository.chain("ctr", 3)) == 3
