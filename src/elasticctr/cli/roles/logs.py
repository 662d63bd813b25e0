"""`elasticctr logs`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from elasticctr.cli.options.runs import RunArgument
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cluster.logs import Follower, find_logs


def logs(
    run: RunArgument,
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="ROLE", help="Roles such as trainer-0; default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of last lines to print of each role.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print the logs of a distributed run.

    With several roles, each line starts with the name of its role.

    Example: `elasticctr logs runs/deepfm trainer-0 --follow`
    """
    paths = find_logs(run, roles or [])
    followers = [Follower(path, lines) for path in paths]
    width = max(len(follower.name) for follower in followers)
    is_many = len(followers) > 1

    def show() -> bool:
        is_news = False
        for follower in followers:
            for line in follower.read():
                is_news = True
                if as_json:
                    print_json({"role": follower.name, "line": line})
                else:
                    typer.echo(f"{follower.name:<{width}} | {line}" if is_many else line)
        return is_news

    show()
    while follow:
        if not show():
            time.sleep(0.2)
