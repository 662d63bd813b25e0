"""Where a process listens, who may reach it, and how a client shows the secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Host = Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0: any free port.", min=0, max=65535)]
ServerToken = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the secret that clients must send. See `elasticctr token`."),
]
ReadToken = Annotated[
    Path | None,
    typer.Option("--read-token-file", help="File with a second secret, for clients that may read but not control."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="ELASTICCTR_INSECURE",
        help="Allow listening beyond loopback without a token: anyone who reaches the port has full access.",
    ),
]
SharedToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File with the secret that transfer, agents and servers share. See `elasticctr token`."
    ),
]
ClientToken = Annotated[Path | None, typer.Option("--token-file", help="File with the server's secret.")]
JobToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="ELASTICCTR_TOKEN_FILE",
        help="File with the job's secret; default: `cluster.token_file` of the job.",
    ),
]
