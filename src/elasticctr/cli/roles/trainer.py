"""`elasticctr trainer`: the role of a distributed job that computes gradients."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.train import Overrides
from elasticctr.errors import ConfigError


def trainer(
    job_file: Annotated[Path, typer.Option("--job", metavar="JOB", help="Job file (YAML) with a cluster section.")],
    coordinator: Annotated[
        str | None,
        typer.Option(
            envvar="ELASTICCTR_COORDINATOR",
            help="URL of the job's coordinator, or the run directory it writes its address to.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(envvar="ELASTICCTR_NAME", help="Unique, and kept over restarts; default: host and process id."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the job's secret; default: cluster.token_file.", envvar="ELASTICCTR_TOKEN_FILE"),
    ] = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Strategy collective: go on from a checkpoint.")] = False,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Take part in a distributed job as a trainer: lease work, learn, report, until there is no more.

    SIGTERM finishes the batch at hand, gives the rest back and ends. Killed, it loses nothing either.

    Example: `elasticctr trainer --job job.yaml --coordinator http://10.0.0.5:7070`
    """
    from elasticctr.train.job import load_job

    job = with_tls(load_job(job_file, list(overrides or [])), tls_cert, tls_key, tls_client_ca, tls_ca)
    if job.cluster is not None and job.cluster.strategy == "collective":
        from elasticctr.collective import run as collective

        if not collective.run(job, resume=resume, quiet=as_json).is_finished:
            raise typer.Exit(130)
        return
    if coordinator is None:
        raise ConfigError("which coordinator? Give --coordinator URL, or set ELASTICCTR_COORDINATOR")
    from elasticctr.net.access import read_optional_token
    from elasticctr.ps.trainer.trainer import TrainerRole
    from elasticctr.train.interrupt import Interrupt

    if token_file is None and job.cluster is not None and job.cluster.token_file is not None:
        token_file = Path(job.cluster.token_file)
    token = read_optional_token(token_file) or ""
    with Interrupt() as interrupt:
        role = TrainerRole(job, coordinator, token=token, name=name, is_interrupted=lambda: interrupt.is_set)
        summary = role.run()
    if as_json:
        print_json(asdict(summary))
    else:
        typer.echo(
            f"trainer {role.name}: {summary.samples:,} samples of {summary.chunks} chunks "
            f"in {summary.seconds:.1f} s, {summary.wire_bytes:,} bytes on the wire; {summary.reason}"
        )
    sys.stdout.flush()
