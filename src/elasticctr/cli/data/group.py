"""`elasticctr data`: look at logs, convert them, cache them, make them up."""

from __future__ import annotations

import typer

from elasticctr.cli.data.buckets import buckets
from elasticctr.cli.data.cache import cache
from elasticctr.cli.data.convert import convert
from elasticctr.cli.data.inspect import inspect
from elasticctr.cli.data.synth import synth
from elasticctr.cli.data.vocabulary import vocabulary

app = typer.Typer(
    name="data",
    help="Look at click logs, convert them, cache them, make them up.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command()(inspect)
app.command()(convert)
app.command()(cache)
app.command()(buckets)
app.command()(vocabulary)
app.command()(synth)
