"""`elasticctr cube build`, `inspect` and `compact` on text rows, and their mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.cli.options.sizes import parse_size
from elasticctr.cube.live import read_live
from elasticctr.cube.local import LocalCube
from elasticctr.errors import ConfigError


def run(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_text_rows_are_built_inspected_and_compacted(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("".join(f"{i}:{i}.5,1,2\n" for i in range(100)))
    (tmp_path / "more.txt").write_text("7:70,0,0\n7:71,0,0\n200:5,5,5\n")
    out = str(tmp_path / "builds")
    built = run("cube", "build", str(tmp_path / "rows.txt"), "--out", out, "--model", "m", "--activate")
    assert (built["version"], built["kind"], built["rows"], built["tables"]) == (1, "base", 100, ["embedding"])
    assert read_live(tmp_path / "builds/m") == (1, 0)
    built = run("cube", "build", str(tmp_path / "more.txt"), "--out", out, "--model", "m", "--parent", "1")
    assert (built["version"], built["kind"], built["rows"], built["duplicates"]) == (2, "delta", 2, 1)
    cube = LocalCube(out)
    cube.activate(2)
    assert cube.get("embedding", [7, 8, 200]).rows[:, 0].tolist() == [71.0, 8.5, 5.0]
    shown = run("cube", "inspect", f"{out}/m/2", "--verify", "--keys", "7,9")["files"][0]
    assert shown["is_verified"] is True
    assert [(entry["feasign"], entry["row"]) for entry in shown["entries"]] == [(7, [71.0, 0.0, 0.0]), (9, None)]
    compacted = run("cube", "compact", out, "--version", "2", "--out", str(tmp_path / "compacted"))
    assert (compacted["kind"], compacted["rows"]) == ("base", 101)
    assert LocalCube(tmp_path / "compacted").get("embedding", np.array([7])).rows[0, 0] == 71.0


def test_mistakes_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("1:1,2\n")
    rows, out = str(tmp_path / "rows.txt"), str(tmp_path / "out")
    assert "--model" in run("cube", "build", rows, "--out", out, status=10)["error"]["message"]
    arguments = ("cube", "build", rows, "--out", out, "--model", "m")
    assert "one shard" in run(*arguments, "--activate", "--shards", "2", status=10)["error"]["message"]
    assert "not a size" in run(*arguments, "--memory", "much", status=10)["error"]["message"]
    missing = run("cube", "build", str(tmp_path / "none"), "--out", out, "--model", "m", status=12)
    assert missing["error"]["code"] == "NotFound"
    assert "whole numbers" in run("cube", "inspect", rows, "--keys", "x", status=10)["error"]["message"]
    assert run("cube", "inspect", rows, status=14)["error"]["code"] == "Corruption"


def test_people_read_a_summary(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("1:1,2\n")
    out = str(tmp_path / "out")
    result = CliRunner().invoke(app, ["cube", "build", str(tmp_path / "rows.txt"), "--out", out, "--model", "m"])
    assert result.exit_code == 0
    assert "m 1, base, 1 shards" in result.output
    result = CliRunner().invoke(app, ["cube", "inspect", f"{out}/m/1"])
    assert "m/embedding, version 1, base" in result.output


@pytest.mark.parametrize(
    ("text", "size"), [("1GiB", 1 << 30), ("2gb", 2 * 10**9), ("4096", 4096), ("1.5M", 3 << 19), ("7 KiB", 7168)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_no_size() -> None:
    with pytest.raises(ConfigError, match="not a size"):
        parse_size("1 parsec")
