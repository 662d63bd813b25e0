"""`elasticctr coordinator`: the process that directs a training run with pservers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure, JobToken, Port, ReadToken
from elasticctr.cli.options.runs import JobConfig, Overrides
from elasticctr.cli.options.settings import setting
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.obs import console
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job, load_job


def coordinator(
    config: JobConfig,
    run_dir: Annotated[str | None, setting(Job, "run_dir")] = None,
    host: Annotated[str | None, setting(ClusterSettings, "host")] = None,
    port: Port = 8300,
    token_file: JobToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that has ended, from its newest checkpoint.")
    ] = False,
    overrides: Overrides = None,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run the coordinator of a distributed job.

    Pservers and trainers join it, receive work from it and stop when it ends the job. Restarted after a crash, it
    continues where it stopped. Ctrl-C or SIGTERM writes a checkpoint and ends every role.

    Example: `elasticctr coordinator --config job.yaml --port 8300`
    """
    from elasticctr.net.access import load_tokens
    from elasticctr.ps.coordinator.process import run_coordinator

    changes = list(overrides or [])
    if run_dir is not None:
        changes.append(f"run_dir={run_dir}")
    job = with_tls(load_job(config, changes), cert_file, key_file, client_ca_file, ca_file)
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
        console.stderr().print(f"stopped; resume with --resume (run {job.run_dir})", soft_wrap=True, markup=False)
