"""`elasticctr cube server`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticctr.cli.options.access import Host, Insecure, Port, ReadToken, ServerToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cube.server import CubeServerAddress, CubeServerOptions, parse_shard, run
from elasticctr.net.access import load_tokens


def server(
    data: Annotated[Path, typer.Option(help="Directory with the shard's index files: MODEL/VERSION/TABLE.cube.")],
    port: Port = 8000,
    host: Host = "127.0.0.1",
    unix: Annotated[Path | None, typer.Option(help="Also listen on this Unix socket.")] = None,
    redis_port: Annotated[
        int | None,
        typer.Option(help="Additional port, for Redis clients; every port speaks all protocols.", min=0, max=65535),
    ] = None,
    http_port: Annotated[int | None, typer.Option(help="Additional port, for HTTP clients.", min=0, max=65535)] = None,
    in_mem: Annotated[bool, typer.Option("--in-mem/--mmap", help="Copy index files into memory, or map them.")] = True,
    threads: Annotated[int, typer.Option(help="Threads that answer requests, one core each.", min=1, max=256)] = 1,
    token_file: ServerToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    shard: Annotated[
        str | None, typer.Option(help="Serve this shard of a built directory, such as 0/2 for the first of two.")
    ] = None,
    activate: Annotated[
        Literal["live", "newest"],
        typer.Option(help="Version to serve at start: the one LIVE names, or the newest if there is no LIVE file."),
    ] = "live",
    check: Annotated[
        Literal["all", "header"],
        typer.Option(help="What to verify before a version is ready; header suits --mmap of files verified earlier."),
    ] = "all",
    max_connections: Annotated[
        int, typer.Option(help="Maximum number of connections; further ones are closed.", min=1)
    ] = 20_000,
    max_connections_per_address: Annotated[
        int, typer.Option(help="Maximum per client address; 0: a quarter of --max-connections, at least 256.", min=0)
    ] = 0,
    max_buffered: Annotated[
        int, typer.Option(help="MiB of partial requests and unread answers; beyond it, requests are refused.", min=1)
    ] = 1024,
    request_timeout: Annotated[
        int, typer.Option(help="Seconds for a request to arrive completely, and for an answer to be read.", min=1)
    ] = 15,
    busy_poll: Annotated[
        int, typer.Option(help="Microseconds to poll before sleeping: trades CPU for latency.", min=0)
    ] = 0,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run a Cube server.

    One port speaks the Cube protocol, the Redis protocol (read-only) and HTTP. Prints one line once the version that
    LIVE names is loaded. On SIGTERM it answers the requests it has received and exits.

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
        tls=read_tls(cert_file, key_file, client_ca_file, ca_file),
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
