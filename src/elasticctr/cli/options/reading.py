"""Which log a command reads, and what it may replace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.settings import setting
from elasticctr.data.settings import ReadOptions

LocationArgument = Annotated[
    str, typer.Argument(metavar="LOCATION", help="File, directory, glob, date tree or URL to read.")
]
SchemaOption = Annotated[
    Path | None, typer.Option("--schema", help="schema.yaml; default: guessed from the first lines.")
]
StartOption = Annotated[str | None, setting(ReadOptions, "start", "--start", metavar="DATE")]
EndOption = Annotated[str | None, setting(ReadOptions, "end", "--end", metavar="DATE")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Fail at the first bad line instead of skipping it.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
