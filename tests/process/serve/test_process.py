"""The command as a process: its imports, its errors for bad settings, its end."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_server_starts_without_torch_and_without_onnxruntimes_python() -> None:
    code = (
        "import sys, elasticctr.cli.app, elasticctr.cli.serve.serve, elasticctr.serve.process\n"
        "print([name for name in ('torch', 'onnxruntime', 'pandas', 'httpx', 'fsspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 10, "nothing to serve"),
        (["--repo", "r"], 10, "nothing to serve"),
        (["--config", "nowhere.yaml"], 12, "no such file"),
        (["--repo", "r", "--model", "ctr", "--token-file", "nowhere"], 12, "no such token file"),
        (["--repo", "r", "--model", "ctr", "--cert-file", "nowhere"], 10, "go together"),
        (["--repo", "r", "--model", "ctr", "--cube", "nowhere.yaml"], 12, "no such file"),
        (["--repo", "r", "--model", "a/b"], 10, "a name has up to 64"),
    ],
)
def test_mistakes_end_with_a_sentence_and_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, message: str
) -> None:
    from typer.testing import CliRunner

    from elasticctr.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What fails later than these would leave this process with blocked signals.
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_: None)
    done = CliRunner().invoke(app, ["serve", *arguments, "--port", "0"])
    assert (done.exit_code, message in done.output) == (status, True), done.output


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_port_that_is_taken_is_told(tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"--port": "0", "--grpc-port": "-1", option: str(taken.getsockname()[1])}
        flags = [word for pair in ports.items() for word in pair]
        command = ["serve", "--repo", str(tmp_path), "--model", "ctr", "--index-dir", str(tmp_path / "index"), *flags]
        done = subprocess.run(
            [sys.executable, "-m", "elasticctr", *command], capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, "cannot listen" in done.stderr) == (17, True), done.stderr
