"""A write that fails leaves the old file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticctr.errors import AlreadyExists, ConfigError, Corruption, InternalError, NotFound
from elasticctr.storage.atomic import atomic_file, read_json, remove_tree, replacing, write_json, write_new


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.json"
    write_json(path, {"live": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InternalError, match="the disk is full"):
        write_json(path, {"live": 2})
    assert read_json(path) == {"live": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.json"]


def test_json_other_than_an_object_is_corruption(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_json(tmp_path / "a")
    for text in ("", "{", "[]", "7"):
        (tmp_path / "a").write_text(text)
        with pytest.raises(Corruption):
            read_json(tmp_path / "a")


def test_removing_is_repeatable(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/x").write_text("x")
    (tmp_path / ".7.gone").mkdir()
    remove_tree(tmp_path / "7")
    remove_tree(tmp_path / "7")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "scores.txt"
    with atomic_file(path) as file:
        file.write(b"old")
    with pytest.raises(ValueError, match="amid"), atomic_file(path, overwrite=True) as file:
        file.write(b"half")
        raise ValueError("amid")
    assert path.read_bytes() == b"old"
    with pytest.raises(AlreadyExists, match="--overwrite"), atomic_file(path):
        pass
    assert [entry.name for entry in path.parent.iterdir()] == ["scores.txt"]
    with pytest.raises(ConfigError, match="is a directory"), atomic_file(path.parent, overwrite=True) as file:
        file.write(b"new")


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    assert write_new(tmp_path / "a", b"first", mode=0o600)
    assert not write_new(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_the_bytes_are_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "a", list[bool]()
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.exists()))
    with replacing(path) as temporary:
        temporary.write_bytes(b"x")
    assert synced == [False, True]
