"""Where the `elasticctr` command starts. Servers are started often and stay long: theirs is the one command that is
made without importing all the others, which take ten times as long to load and stay in memory."""

from __future__ import annotations

import sys

import typer

_SERVER = ["cube", "server"]


def main() -> None:
    app = make_server_app() if sys.argv[1:3] == _SERVER else _whole_app()
    app()


def make_server_app() -> typer.Typer:
    """The command tree with `cube server` alone in it."""
    from elasticctr.cli.cube_server import server
    from elasticctr.cli.output import CommandGroup

    app = typer.Typer(name="elasticctr", cls=CommandGroup, add_completion=False, pretty_exceptions_enable=False)
    cube = typer.Typer(name="cube", rich_markup_mode="markdown")
    # A group of one command would be that command.
    cube.callback()(lambda: None)
    cube.command("server")(server)
    app.callback()(lambda: None)
    app.add_typer(cube)
    return app


def _whole_app() -> typer.Typer:
    from elasticctr.cli.app import app

    return app
