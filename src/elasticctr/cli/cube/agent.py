"""`elasticctr cube agent`: the process beside each cube server that fetches, checks and activates versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure, ReadToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.errors import ConfigError
from elasticctr.obs import console

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]?)B?(?:/s)?")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}


def agent(
    server: Annotated[str, typer.Option(help="Address of the cube server it stands beside.")],
    data: Annotated[Path, typer.Option(help="Directory the server reads (its --data); on the same disk.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one and prints it.")
    ] = 8001,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the secret shared by transfer, agents and servers. See elasticctr token."),
    ] = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    shard: Annotated[str | None, typer.Option(help="Take this shard only, such as 0/2; any other is refused.")] = None,
    allow_source: Annotated[
        list[str] | None,
        typer.Option(help="URL or directory versions may be fetched from; repeatable. Default: loopback addresses."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="URL of a further source that shares the secret; repeatable. The transfer in charge does, others are "
            "asked without it."
        ),
    ] = None,
    rate_limit: Annotated[str | None, typer.Option(help="Most bytes per second fetched, such as 100MB/s.")] = None,
    job_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds one version may take to arrive and load.")
    ] = 3600.0,
    watch: Annotated[
        float, typer.Option(min=0.05, help="Seconds between two looks at whether the server lost its data.")
    ] = 1.0,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run the agent of one cube server: fetches versions from transfer, checks them, has them loaded and activated.

    Example: `elasticctr cube agent --server http://127.0.0.1:8000 --data /srv/cube --port 8001 --token-file token`
    """
    from elasticctr.compat.paddle_cube.agent_api import agent_routes
    from elasticctr.cube.agent.process import AgentOptions, AgentProcess
    from elasticctr.net.access import load_tokens

    process = AgentProcess(
        AgentOptions(
            server=server,
            data=data,
            host=host,
            port=port,
            tokens=load_tokens(token_file, read_token_file),
            insecure=insecure,
            shard=_parse_shard(shard),
            allow_sources=tuple(allow_source or ()),
            peers=tuple(peer or ()),
            rate_limit_bytes_s=_parse_rate(rate_limit),
            job_timeout_s=job_timeout,
            watch_s=watch,
            tls=read_tls(tls_cert, tls_key, tls_client_ca, tls_ca),
            routes=agent_routes,
        )
    )
    address = f"{process.web.scheme}://{host}:{process.web.port}"
    if json:
        print_json({"listening": address, "server": server, "data": str(data)})
    else:
        console.stdout().print(f"cube agent at {address}, server {server}, data {data}", soft_wrap=True, markup=False)
    process.run()


def _parse_shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if match is None or not int(match[1]) < int(match[2]) <= 4096:
        raise ConfigError(f"--shard {text}: expected SHARD/SHARDS such as 0/2, counted from 0")
    return int(match[1]), int(match[2])


def _parse_rate(text: str | None) -> float | None:
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"--rate-limit {text}: expected bytes per second such as 100MB/s, 512kB/s or 1GB/s")
    return float(match[1]) * _UNITS[match[2]]
