"""`elasticctr token` writes tokens that servers accept."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.net.access import read_token


def test_token_makes_a_file_that_servers_take(tmp_path: Path) -> None:
    path = tmp_path / "token"
    done = CliRunner().invoke(app, ["token", str(path)])
    assert done.exit_code == 0 and "--token-file" in done.stdout
    first = read_token(path)
    assert first not in done.stdout
    assert CliRunner().invoke(app, ["token", str(path)]).exit_code == 13
    assert read_token(path) == first
    done = CliRunner().invoke(app, ["token", str(path), "--overwrite", "--json"])
    assert json.loads(done.stdout) == {"file": str(path)}
    assert read_token(path) != first


def test_token_without_a_file_prints_it() -> None:
    assert len(CliRunner().invoke(app, ["token"]).stdout.strip()) == 64
    assert len(json.loads(CliRunner().invoke(app, ["token", "--json"]).stdout)["token"]) == 64
