"""The `elasticctr` command. Errors of the tree end as one line on stderr and their exit status, never a traceback."""

from __future__ import annotations

import typer

from elasticctr import __version__
from elasticctr.cli.cube import group as cube
from elasticctr.cli.data import group as data
from elasticctr.cli.demo import demo
from elasticctr.cli.doctor import doctor
from elasticctr.cli.output import CommandGroup
from elasticctr.cli.publish import publish
from elasticctr.cli.publish.fsck import fsck
from elasticctr.cli.roles.coordinator import coordinator
from elasticctr.cli.roles.pserver import pserver
from elasticctr.cli.roles.status import checkpoint, logs, status, stop
from elasticctr.cli.roles.trainer import trainer
from elasticctr.cli.serve import feedback, variants
from elasticctr.cli.serve.call import call
from elasticctr.cli.serve.serve import serve
from elasticctr.cli.token import token
from elasticctr.cli.train import train
from elasticctr.cli.train.evaluate import evaluate
from elasticctr.cli.train.explain import explain
from elasticctr.cli.train.tune import tune

app = typer.Typer(
    name="elasticctr",
    cls=CommandGroup,
    help="From a click log to live click-through-rate predictions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"elasticctr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


app.add_typer(data.app)
app.add_typer(cube.app)
app.add_typer(feedback.app)
app.command()(train.train)
app.command("eval")(evaluate)
app.command()(train.predict)
app.command()(explain)
app.command()(train.report)
app.command()(tune)
app.command()(status)
app.command()(logs)
app.command()(checkpoint)
app.command()(stop)
app.command()(coordinator)
app.command()(pserver)
app.command()(publish.publish)
app.command()(publish.versions)
app.command()(publish.verify)
app.command()(publish.rollback)
app.command()(fsck)
app.command()(serve)
app.command()(trainer)
app.add_typer(variants.app)
app.command()(call)
app.command()(token)
app.command()(demo)
app.command()(doctor)


def main() -> None:
    app()
