"""How commands that listen are told who may reach them: `--token-file`, `--read-token-file`, `--insecure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ServerToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File with the secret that clients must show; it may do everything. See elasticctr token."
    ),
]
ReadToken = Annotated[
    Path | None,
    typer.Option("--read-token-file", help="File with a second secret, for clients that may read but not command."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="ELASTICCTR_INSECURE",
        help="Listen on other addresses than loopback without a token: whoever reaches it may command it.",
    ),
]
