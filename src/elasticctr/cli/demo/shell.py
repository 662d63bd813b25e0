"""Runs our commands as a user would, and reports what happens in between."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

import typer

from elasticctr.errors import InternalError


class Shell:
    """With `as_json`, nothing is shown and every command answers JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, text: str) -> None:
        if not self.as_json:
            typer.echo(text)

    def show(self, *arguments: str) -> dict[str, Any]:
        """Runs a command, shown as typed and with its own output."""
        if self.as_json:
            return self.ask(*arguments)
        typer.echo(f"\n$ elasticctr {shlex.join(arguments)}")
        done = subprocess.run([sys.executable, "-m", "elasticctr", *arguments], text=True, check=False)
        return {} if done.returncode == 0 else _fail(arguments, done)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a command without waiting, shown as typed and with its own output."""
        if not self.as_json:
            typer.echo(f"\n$ elasticctr {shlex.join(arguments)}")
        quiet = subprocess.DEVNULL if self.as_json else None
        # A Ctrl-C of the terminal reaches it too, and it ends its processes.
        command = [sys.executable, "-m", "elasticctr", *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet)

    def ask(self, *arguments: str, told: bool = False) -> dict[str, Any]:
        """Runs a command for its JSON."""
        if told and not self.as_json:
            typer.echo(f"\n$ elasticctr {shlex.join(arguments)}")
        command = [sys.executable, "-m", "elasticctr", *arguments, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            return _fail(arguments, done)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def _fail(arguments: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    raise InternalError(
        f"elasticctr {shlex.join(arguments)} ended with status {done.returncode}: {(done.stdout or '').strip()}"
    )
