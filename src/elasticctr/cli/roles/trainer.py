"""`elasticctr trainer`: the role of a distributed job that computes gradients."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import JobToken
from elasticctr.cli.options.runs import JobConfig, Overrides
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.errors import ConfigError


def trainer(
    config: JobConfig,
    coordinator: Annotated[
        str | None,
        typer.Option(
            envvar="ELASTICCTR_COORDINATOR",
            help="URL of the coordinator, or the run directory.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(envvar="ELASTICCTR_NAME", help="Unique name of this role; default: host and process id."),
    ] = None,
    token_file: JobToken = None,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="For strategy collective: continue from a checkpoint.")
    ] = False,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Run a trainer of a distributed job.

    Leases work from the coordinator, trains on it and reports back until none is left. On SIGTERM it finishes the
    current batch, returns the rest of its work and exits. No work is lost if it is killed.

    Example: `elasticctr trainer --config job.yaml --coordinator http://10.0.0.5:7070`
    """
    from elasticctr.train.job import load_job

    job = with_tls(load_job(config, list(overrides or [])), cert_file, key_file, client_ca_file, ca_file)
    if job.cluster is not None and job.cluster.strategy == "collective":
        from elasticctr.collective import run as collective

        if not collective.run(job, resume=resume, quiet=as_json).is_finished:
            raise typer.Exit(130)
        return
    if coordinator is None:
        raise ConfigError("name the coordinator with --coordinator URL, or set ELASTICCTR_COORDINATOR")
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
