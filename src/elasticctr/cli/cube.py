"""`elasticctr cube`: the commands of the sparse parameter service, one file each."""

from __future__ import annotations

import typer

from elasticctr.cli.cube_agent import agent
from elasticctr.cli.cube_bench import bench
from elasticctr.cli.cube_build import build, compact
from elasticctr.cli.cube_export import export
from elasticctr.cli.cube_get import get
from elasticctr.cli.cube_inspect import inspect
from elasticctr.cli.cube_server import server
from elasticctr.cli.cube_status import status
from elasticctr.cli.cube_transfer import transfer

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
