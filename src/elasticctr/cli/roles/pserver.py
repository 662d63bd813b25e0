"""`elasticctr pserver`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure, JobToken, Port
from elasticctr.cli.options.runs import JobConfig
from elasticctr.cli.options.settings import setting
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_optional_token
from elasticctr.ps.pserver.pserver import PServerAddress, PServerOptions, run
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import load_job


def pserver(
    config: JobConfig,
    coordinator: Annotated[
        str | None,
        typer.Option(help="URL of the coordinator, or the run directory; default: run without a coordinator."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Unique name of this role; keep it across restarts.")] = None,
    shard: Annotated[
        int | None, typer.Option(help="Number of this pserver, from 0; default: assigned by the coordinator.", min=0)
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="Number of pservers; default: `cluster.pservers` of the job.", min=1, max=4096),
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Run a standby: a copy of a shard that can take over.")
    ] = False,
    host: Annotated[str | None, setting(ClusterSettings, "host")] = None,
    port: Port = 0,
    unix: Annotated[Path | None, typer.Option(help="Also listen on this Unix socket.")] = None,
    token_file: JobToken = None,
    insecure: Insecure = False,
    load: Annotated[
        Path | None, typer.Option(help="Checkpoint to start from, for a pserver without a coordinator.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that answer requests.", min=1, max=256)] = 2,
    step_threads: Annotated[
        int, typer.Option(help="Threads that apply one push; more than 1 pays off for large batches.", min=1, max=256)
    ] = 1,
    max_buffered: Annotated[
        int,
        typer.Option(help="MiB of partial requests and unread answers; beyond it, requests are refused.", min=1),
    ] = 2048,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run a parameter server of a distributed job.

    Holds one shard of the tables and dense parameters. Prints one line once it accepts requests, then serves until
    SIGTERM or until the coordinator ends the job. Missing options are read from PaddlePaddle's environment variables,
    such as PADDLE_PSERVERS_IP_PORT_LIST, POD_IP and PADDLE_PORT.

    Example: `elasticctr pserver --config job.yaml --coordinator http://10.0.0.1:9000 --host 0.0.0.0 --token-file token`
    """
    settings = with_tls(load_job(config), cert_file, key_file, client_ca_file, ca_file)
    assigned = read_environment(os.environ)
    if assigned is not None and assigned.role == "pserver":
        assigned_host, assigned_port = assigned.endpoint
        shard = assigned.index if shard is None else shard
        shards = shards or len(assigned.pservers)
        host, port = host or assigned_host, port or assigned_port
        coordinator, name = coordinator or assigned.coordinator or None, name or assigned.name
    if standby and coordinator is None:
        raise ConfigError("--standby needs --coordinator: the coordinator tells a standby which shard to follow")
    if load is not None and coordinator is not None:
        raise ConfigError("--load is for a pserver without --coordinator: the coordinator decides what to load")
    cluster = settings.cluster or ClusterSettings()
    if token_file is None and cluster.token_file is not None:
        token_file = Path(cluster.token_file)
    options = PServerOptions(
        job=settings,
        shard=shard,
        shards=shards,
        host=host or cluster.host,
        port=port,
        unix=unix,
        name=name,
        coordinator=coordinator,
        is_standby=standby,
        token=read_optional_token(token_file) or "",
        insecure=insecure or cluster.insecure,
        threads=threads,
        step_threads=step_threads,
        load=load,
        max_buffered_mib=max_buffered,
    )

    def announce(listening: PServerAddress) -> None:
        if json:
            print_json(asdict(listening))
        else:
            state = "ready" if listening.is_ready else "waits for the coordinator"
            place = f"{listening.role} of shard {listening.shard} of {listening.shards}"
            typer.echo(f"{listening.name} {listening.pid} on {listening.address}, {place}: {state}")
        sys.stdout.flush()

    run(options, announce)
