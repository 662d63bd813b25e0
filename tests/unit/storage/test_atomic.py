from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticctr.errors import Corruption, InternalError, NotFound
from elasticctr.storage.atomic import read_json, remove_tree, write_json


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
