"""`elasticctr cube`: the commands of the sparse parameter service, one file each."""

from __future__ import annotations

import typer

from elasticctr.cli.cube.agent import agent
from elasticctr.cli.cube.bench import bench
from elasticctr.cli.cube.build import build, compact
from elasticctr.cli.cube.export import export
from elasticctr.cli.cube.get import get
from elasticctr.cli.cube.inspect import inspect
from elasticctr.cli.cube.server import server
from elasticctr.cli.cube.status import status
from elasticctr.cli.cube.transfer import transfer

app = typer.Typer(
    name="cube",
    help="Build, serve and ask the sparse parameter service.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

app.command("build")(build)
app.command("compact")(compact)
app.command("export")(export)
app.command("inspect")(inspect)
app.command("agent")(agent)
app.command("server")(server)
app.command("transfer")(transfer)
app.command("status")(status)
app.command("get")(get)
app.command("bench")(bench)
