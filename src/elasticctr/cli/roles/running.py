"""How commands reach the coordinator of a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import NotFound
from elasticctr.net.access import read_optional_token
from elasticctr.train.run_directory import RunDirectory

RunToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="File with the job's secret; default: `cluster.token_file` of the job, else the run directory's own.",
    ),
]


def open_directory(run: Path) -> RunDirectory:
    directory = RunDirectory(run)
    if not directory.job.exists():
        raise NotFound(f"{run}: is not a run directory (no job.yaml)")
    return directory


def token_of(directory: RunDirectory, given: Path | None) -> str | None:
    if given is not None:
        return read_optional_token(given)
    settings = directory.load_job().cluster
    if settings is not None and settings.token_file is not None:
        return read_optional_token(Path(settings.token_file))
    own = directory.path / "cluster" / "token"
    return read_optional_token(own) if own.exists() else None


def tls_of(directory: RunDirectory) -> TlsSettings | None:
    settings = directory.load_job().cluster
    return None if settings is None else settings.tls
