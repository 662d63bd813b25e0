"""Where the `elasticctr` command starts. Servers are started often and stay long: theirs are commands that are made
without importing all the others, which take ten times as long to load and stay in memory."""

from __future__ import annotations

import importlib
import sys

import typer

ROLES = ("coordinator", "pserver", "trainer")


def main() -> None:
    if sys.argv[1:3] == ["cube", "server"]:
        app = make_server_app()
    elif sys.argv[1:2] == ["serve"]:
        app = make_serve_app()
    elif sys.argv[1:2] and sys.argv[1] in ROLES:
        app = make_role_app(sys.argv[1])
    else:
        app = _whole_app()
    app()


def make_server_app() -> typer.Typer:
    """The command tree with `cube server` alone in it."""
    from elasticctr.cli.cube.server import server

    app = _make_root()
    cube = typer.Typer(name="cube", rich_markup_mode="markdown")
    # A group of one command would be that command.
    cube.callback()(lambda: None)
    cube.command("server")(server)
    app.add_typer(cube)
    return app


def make_serve_app() -> typer.Typer:
    """The command tree with `serve` alone in it."""
    from elasticctr.cli.serve.serve import serve

    app = _make_root()
    app.command("serve")(serve)
    return app


def make_role_app(name: str) -> typer.Typer:
    """The command tree with one role of a distributed job alone in it."""
    app = _make_root()
    app.command(name)(getattr(importlib.import_module(f"elasticctr.cli.roles.{name}"), name))
    return app


def _make_root() -> typer.Typer:
    from elasticctr.cli.output import CommandGroup

    app = typer.Typer(
        name="elasticctr",
        cls=CommandGroup,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(lambda: None)
    return app


def _whole_app() -> typer.Typer:
    from elasticctr.cli.app import app

    return app
