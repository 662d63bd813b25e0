"""`elasticctr token`: makes the secret that servers and their clients share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.net.access import make_token, write_token


def token(
    file: Annotated[Path | None, typer.Argument(help="File to write; without one the secret is printed.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the secret of a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Make a secret for --token-file or --read-token-file: 32 random bytes, in a file that only you can read.

    Example: `elasticctr token token`
    """
    secret = make_token()
    if file is None:
        print_json({"token": secret}) if json else typer.echo(secret)
        return
    write_token(file, secret, overwrite=overwrite)
    print_json({"file": str(file)}) if json else typer.echo(f"{file}: a new secret; give it as --token-file {file}")
