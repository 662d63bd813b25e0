"""What is recorded about a machine, and what must not be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from elasticctr.obs.environment import capture_environment, hide_secrets


def test_environment_is_json_and_names_the_machine(tmp_path: Path) -> None:
    environment = json.loads(json.dumps(capture_environment(tmp_path)))
    assert environment["cores"] >= 1 and environment["memory_gib"] > 0
    assert environment["packages"]["numpy"]
    assert environment["python"].startswith("3.")
    assert environment["git_commit"] is None and environment["git_dirty"] is None


def test_commit_of_the_directory(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    environment = capture_environment(tmp_path)
    assert len(str(environment["git_commit"])) == 40 and environment["git_dirty"] is False
    (tmp_path / "file").write_text("2")
    assert capture_environment(tmp_path)["git_dirty"] is True


def test_variables_of_the_process_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-in-env")
    assert "hunter2-in-env" not in json.dumps(capture_environment())


def test_secrets_on_the_command_line_are_starred() -> None:
    shown = hide_secrets(
        [
            "elasticctr",
            "train",
            "--api-token",
            "abc",
            "--password=def",
            "s3.secret_key=ghi",
            "http://u:jkl@host/x",
            "a b",
        ]
    )
    assert shown == "elasticctr train --api-token '***' '--password=***' 's3.secret_key=***' 'http://***@host/x' 'a b'"
    assert not any(secret in shown for secret in ("abc", "def", "ghi", "jkl"))
