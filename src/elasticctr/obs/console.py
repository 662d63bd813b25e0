"""Where people are talked to. Progress, warnings and errors go to stderr; only results go to stdout."""

from __future__ import annotations

from functools import cache

from rich.console import Console


@cache
def stderr() -> Console:
    """Progress and messages. One for the whole process: two live displays would overwrite each other."""
    return Console(stderr=True, highlight=False)


@cache
def stdout() -> Console:
    """Results for people, as tables on a terminal. Machines are given JSON instead."""
    return Console(highlight=False)


def warn(message: str) -> None:
    """A named thing the user should know that stops nothing."""
    stderr().print(f"[yellow]warning:[/yellow] {_plain(message)}", soft_wrap=True)


def note(message: str) -> None:
    stderr().print(_plain(message), soft_wrap=True)


def _plain(message: str) -> str:
    return message.replace("[", "\\[")
