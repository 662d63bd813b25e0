"""`elasticctr pserver`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, with_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_optional_token
from elasticctr.ps.pserver.pserver import PServerAddress, PServerOptions, run
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import load_job


def pserver(
    job: Annotated[Path, typer.Option(help="The job file, the same for every role.")],
    coordinator: Annotated[
        str | None,
        typer.Option(help="URL of the coordinator, or the run directory in which it says it. Without: by itself."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name among the roles; the same after a restart.")] = None,
    shard: Annotated[
        int | None, typer.Option(help="Which of the pservers this is, from 0; else the coordinator says.", min=0)
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="How many pservers there are; default: cluster.pservers.", min=1, max=4096)
    ] = None,
    standby: Annotated[bool, typer.Option("--standby", help="A copy of the shard that can take over.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0: all.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.", min=0, max=65535)] = 0,
    unix: Annotated[Path | None, typer.Option(help="Listen on this Unix socket too.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the job's secret; default: cluster.token_file.", envvar="ELASTICCTR_TOKEN_FILE"),
    ] = None,
    insecure: Insecure = False,
    load: Annotated[
        Path | None, typer.Option(help="Checkpoint to begin with; with a coordinator, that one says.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Event loops: requests answered side by side.", min=1, max=256)] = 2,
    step_threads: Annotated[
        int, typer.Option(help="Threads one push is spread over; more than 1 pays for large batches.", min=1, max=256)
    ] = 1,
    max_buffered: Annotated[
        int, typer.Option(help="MiB of half requests and unread answers; above, answers are 'overloaded'.", min=1)
    ] = 2048,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Hold a part of a job's tables and dense parameters for trainers.

    Prints one line when it can be asked, then serves until SIGTERM or until the coordinator ends the job. What is not
    given is taken from the variables of older systems: PADDLE_PSERVERS_IP_PORT_LIST, POD_IP, PADDLE_PORT and others.

    Example: `elasticctr pserver --job job.yaml --coordinator http://10.0.0.1:9000 --host 0.0.0.0 --token-file token`
    """
    settings = with_tls(load_job(job), tls_cert, tls_key, tls_client_ca, tls_ca)
    assigned = read_environment(os.environ)
    if assigned is not None and assigned.role == "pserver":
        assigned_host, assigned_port = assigned.endpoint
        shard = assigned.index if shard is None else shard
        shards = shards or len(assigned.pservers)
        host, port = host or assigned_host, port or assigned_port
        coordinator, name = coordinator or assigned.coordinator or None, name or assigned.name
    if standby and coordinator is None:
        raise ConfigError("a standby follows what the coordinator tells it to; give --coordinator")
    if load is not None and coordinator is not None:
        raise ConfigError("--load is for a pserver by itself; the coordinator says what to load")
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
