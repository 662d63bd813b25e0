"""Pins of versions in use."""

from __future__ import annotations

from pathlib import Path

from elasticctr.serve.activation.pinning import Pin
from elasticctr.serve.settings import ServedModelSettings
from elasticctr.versions.repository import Repository


def make_pin(root: Path) -> Pin:
    return Pin(Repository(str(root)), ServedModelSettings(name="ctr", repo=str(root)), "here")


def test_versions_are_pinned_where_there_is_a_donefile(tmp_path: Path) -> None:
    (tmp_path / "ctr").mkdir()
    (tmp_path / "ctr" / "donefile").write_text("")
    pin = make_pin(tmp_path)
    pin.renew([3, 2])
    assert Repository(str(tmp_path)).pinned("ctr") == {2: [pin.name], 3: [pin.name]}


def test_a_missing_repository_is_not_created_and_is_pinned_once_it_is_back(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    pin = make_pin(root)
    pin.renew([2])
    assert not root.exists()
    (root / "ctr").mkdir(parents=True)
    (root / "ctr" / "donefile").write_text("")
    pin.renew([2])
    assert Repository(str(root)).pinned("ctr") == {2: [pin.name]}
