"""`elasticctr coordinator`: the process that directs a training run with pservers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure, ReadToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.obs import console


def coordinator(
    job_file: Annotated[Path, typer.Option("--job", help="Job file (YAML) with a cluster section.")],
    run_dir: Annotated[str | None, typer.Option(help="Where the run is written; default: run_dir of the job.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: cluster.host of the job.")] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one and prints it.")
    ] = 8300,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the job's secret; default: cluster.token_file.", envvar="ELASTICCTR_TOKEN_FILE"),
    ] = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that has ended, from its newest checkpoint.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, for example cluster.trainers=8."),
    ] = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Direct a training run: pservers and trainers join it, are given work, and are told when it is over.

    Started again after a crash it goes on where it was. Ctrl-C or SIGTERM writes a checkpoint and ends every role.

    Example: `elasticctr coordinator --job job.yaml --port 8300`
    """
    from elasticctr.net.access import load_tokens
    from elasticctr.ps.coordinator.process import run_coordinator
    from elasticctr.train.job import load_job

    changes = list(overrides or [])
    if run_dir is not None:
        changes.append(f"run_dir={run_dir}")
    job = with_tls(load_job(job_file, changes), tls_cert, tls_key, tls_client_ca, tls_ca)
    settings = job.cluster
    if token_file is None and settings is not None and settings.token_file is not None:
        token_file = Path(settings.token_file)

    def tell(url: str) -> None:
        if json:
            print_json({"listening": url, "run_dir": job.run_dir})
        else:
            console.stdout().print(f"coordinator at {url}, run {job.run_dir}", soft_wrap=True, markup=False)

    is_finished = run_coordinator(
        job,
        host=host or (settings.host if settings is not None else "127.0.0.1"),
        port=port,
        tokens=load_tokens(token_file, read_token_file),
        insecure=insecure or (settings is not None and settings.insecure),
        resume=resume,
        is_restarted="ELASTICCTR_RESTARTS" in os.environ,
        on_listening=tell,
    )
    if not is_finished:
        console.stderr().print(f"stopped; go on with --resume (run {job.run_dir})", soft_wrap=True, markup=False)
