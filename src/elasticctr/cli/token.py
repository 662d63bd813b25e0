"""`elasticctr token`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.net.access import make_token, write_token


def token(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write; default: print the secret.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Generate the secret that servers and clients share.

    Writes 32 random bytes, as hex digits, to a file that only you can read; pass it as --token-file or
    --read-token-file.

    Example: `elasticctr token token`
    """
    secret = make_token()
    if file is None:
        print_json({"token": secret}) if json else typer.echo(secret)
        return
    write_token(file, secret, overwrite=overwrite)
    print_json({"file": str(file)}) if json else typer.echo(f"{file}: new secret; pass it as --token-file {file}")
