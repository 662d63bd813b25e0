"""Checkpoints: the newest is opened, and every flipped bit or missing file is found."""

import json
import os
from pathlib import Path

import pytest

from elasticctr.errors import Corruption, FailedPrecondition, InternalError, NotFound
from elasticctr.train.checkpoint import (
    MANIFEST,
    best_checkpoint,
    list_checkpoints,
    note_best,
    open_checkpoint,
    rotate,
    write_checkpoint,
)


def write(directory: Path, step: int) -> Path:
    def files(path: Path) -> None:
        (path / "dense.pt").write_bytes(b"weights %d" % step)
        (path / "main.table").write_bytes(b"rows" * 100)

    return write_checkpoint(directory, step, {"step": step}, files)


def test_the_newest_is_opened_from_the_run_directory(tmp_path: Path) -> None:
    for step in (10, 9, 200):
        write(tmp_path / "checkpoints", step)
    found = open_checkpoint(tmp_path)
    assert (found.step, found.trainer) == (200, {"step": 200})
    assert found.dense.read_bytes() == b"weights 200"
    assert found.table_parts("main")[0].stat().st_size == 400


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    with pytest.raises(FailedPrecondition, match="'other'"):
        open_checkpoint(path).table_parts("other")


@pytest.mark.parametrize("name", ["dense.pt", "trainer.json", MANIFEST])
def test_every_flipped_bit_is_found(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, 1)
    original = (path / name).read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 0x04
        (path / name).write_bytes(damaged)
        try:
            opened = open_checkpoint(path)
        except (Corruption, FailedPrecondition):
            continue
        # Only the manifest may change without harm, in its white space or its step.
        assert name == MANIFEST, f"byte {position} of {name}"
        assert opened.trainer == {"step": 1}


@pytest.mark.parametrize("name", ["dense.pt", "trainer.json", "main.table", MANIFEST])
def test_truncation_and_loss_are_found(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, 1)
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[:-1])
    with pytest.raises(Corruption, match=name.split(".")[0]):
        open_checkpoint(path)
    (path / name).unlink()
    with pytest.raises((Corruption, NotFound)):
        open_checkpoint(path)


def test_a_failed_write_leaves_nothing_and_keeps_the_last(tmp_path: Path) -> None:
    write(tmp_path, 1)

    def fill_the_disk(path: Path) -> None:
        (path / "dense.pt").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InternalError, match="disk is full"):
        write_checkpoint(tmp_path, 2, {}, fill_the_disk)
    assert [p.name for p in tmp_path.iterdir()] == [list_checkpoints(tmp_path)[0].name]
    assert open_checkpoint(tmp_path).step == 1


def test_a_killed_write_is_no_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / ".writing-step-000000000002").mkdir()
    (tmp_path / ".writing-step-000000000002" / MANIFEST).write_text("{}")
    assert open_checkpoint(tmp_path).step == 1
    rotate(tmp_path, keep=5)
    assert len(list(tmp_path.iterdir())) == 1


def test_rotation_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    for step in (1, 2, 3, 4, 5):
        path = write(directory, step)
        if step == 2:
            note_best(directory, path)
    rotate(directory, keep=2)
    assert [int(p.name.split("-")[1]) for p in list_checkpoints(directory)] == [2, 4, 5]
    best = best_checkpoint(tmp_path)
    assert best is not None and best.step == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
@pytest.mark.promise(
    "best.json is empty or damaged after a power cut",
    "checkpoints continue, none is removed, and the message names the file",
)
def test_a_damaged_note_of_the_best_removes_nothing(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "checkpoints"
    paths = [write(directory, step) for step in (1, 2, 3)]
    (directory / "best.json").write_text(text)
    rotate(directory, keep=1)
    assert len(list_checkpoints(directory)) == 3 and "best.json: unreadable" in capsys.readouterr().err
    with pytest.raises(Corruption, match="delete it"):
        best_checkpoint(tmp_path)
    note_best(directory, paths[0])
    rotate(directory, keep=1)
    assert [int(p.name.split("-")[1]) for p in list_checkpoints(directory)] == [1, 3]


def test_the_note_of_the_best_is_on_disk_before_it_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 1)
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def note_sync(file: int) -> None:
        done.append("sync")
        sync(file)

    def note_replace(self: Path, to: Path) -> Path:
        done.append("replace")
        return replace(self, to)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    note_best(tmp_path, path)
    assert done == ["sync", "replace", "sync"]


def test_a_format_from_the_future_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(FailedPrecondition, match="format 2"):
        open_checkpoint(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(NotFound, match="no finished checkpoint"):
        open_checkpoint(tmp_path)
