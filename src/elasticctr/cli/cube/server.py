"""`elasticctr cube server`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticctr.cli.options.access import Insecure, ReadToken, ServerToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cube.server import CubeServerAddress, CubeServerOptions, parse_shard, run
from elasticctr.net.access import load_tokens


def server(
    data: Annotated[Path, typer.Option(help="Directory with the shard's files: MODEL/VERSION/TABLE.cube.")],
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all.")] = "127.0.0.1",
    unix: Annotated[Path | None, typer.Option(help="Listen on this Unix socket too.")] = None,
    redis_port: Annotated[
        int | None,
        typer.Option(help="A further port, for Redis clients. Every port speaks all protocols.", min=0, max=65535),
    ] = None,
    http_port: Annotated[int | None, typer.Option(help="A further port, for HTTP clients.", min=0, max=65535)] = None,
    in_mem: Annotated[
        bool, typer.Option("--in-mem/--mmap", help="Copy files into memory, or map them and let the system page.")
    ] = True,
    threads: Annotated[int, typer.Option(help="Event loops; one core each.", min=1, max=256)] = 1,
    token_file: ServerToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    shard: Annotated[
        str | None, typer.Option(help="Serve this shard of a built directory: 0/2 is the first of two.")
    ] = None,
    activate: Annotated[
        Literal["live", "newest"],
        typer.Option(help="What to serve at the start: what LIVE names, or the newest version where no LIVE file is."),
    ] = "live",
    check: Annotated[
        Literal["all", "header"],
        typer.Option(help="What to check before a version is ready; header is for --mmap of files checked before."),
    ] = "all",
    max_connections: Annotated[int, typer.Option(help="Connections above this are closed at once.", min=1)] = 20_000,
    max_connections_per_address: Annotated[
        int, typer.Option(help="The same for one client address. 0: a quarter of all, at least 256.", min=0)
    ] = 0,
    max_buffered: Annotated[
        int, typer.Option(help="MiB of half requests and unread answers; above, answers are 'overloaded'.", min=1)
    ] = 1024,
    request_timeout: Annotated[
        int, typer.Option(help="Seconds for a request to arrive whole and for an answer to be read.", min=1)
    ] = 15,
    busy_poll: Annotated[
        int, typer.Option(help="Microseconds to look for work before sleeping: lower latency for CPU.", min=0)
    ] = 0,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Serve rows: our wire protocol, Redis' (read-only) and HTTP, all on one port.

    Prints one line when what LIVE names is loaded, then serves until SIGTERM, finishes what arrived and ends.

    Example: `elasticctr cube server --data cube --port 8000 --threads 2 --token-file token`
    """
    extra = tuple(p for p in (redis_port, http_port) if p is not None)
    options = CubeServerOptions(
        data=data,
        host=host,
        port=port,
        extra_ports=extra,
        unix=unix,
        in_memory=in_mem,
        check=check,
        threads=threads,
        tokens=load_tokens(token_file, read_token_file),
        insecure=insecure,
        shard=None if shard is None else parse_shard(shard),
        activate_newest=activate == "newest",
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        max_buffered_mib=max_buffered,
        request_timeout_s=request_timeout,
        busy_poll_us=busy_poll,
        tls=read_tls(tls_cert, tls_key, tls_client_ca, tls_ca),
    )

    def announce(listening: CubeServerAddress) -> None:
        if json:
            print_json(asdict(listening))
        else:
            ports = " ".join(f"{host}:{p}" for p in (listening.port, *listening.extra_ports))
            state = "ready" if listening.ready else f"nothing to serve yet: {listening.reason}"
            typer.echo(f"cube server {listening.pid} on {ports}: {state}")
        sys.stdout.flush()

    run(options, announce)
    sys.stdout.flush()
    # A version may be loading; what it would become is of no use any more.
    os._exit(0)
