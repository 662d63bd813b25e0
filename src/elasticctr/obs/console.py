"""Output for people. Progress, warnings and errors go to stderr; only results go to stdout."""

from __future__ import annotations

from functools import cache

from rich.console import Console


@cache
def stderr() -> Console:
    """For progress and messages. One per process: two live displays would overwrite each other."""
    return Console(stderr=True, highlight=False)


@cache
def stdout() -> Console:
    """For results as tables on a terminal. Machines get JSON instead."""
    return Console(highlight=False)


def warn(message: str) -> None:
    """Tells the user about a problem that does not stop the work."""
    stderr().print(f"[yellow]warning:[/yellow] {_plain(message)}", soft_wrap=True)


def note(message: str) -> None:
    stderr().print(_plain(message), soft_wrap=True)


def _plain(message: str) -> str:
    return message.replace("[", "\\[")
