"""`elasticctr cube agent`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Host, Insecure, Port, ReadToken, SharedToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.errors import ConfigError
from elasticctr.obs import console

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]?)B?(?:/s)?")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}


def agent(
    endpoint: Annotated[str, typer.Option(metavar="URL", help="Cube server to control.")],
    data: Annotated[Path, typer.Option(help="Data directory of that server (its --data), on the same disk.")],
    port: Port = 8001,
    host: Host = "127.0.0.1",
    token_file: SharedToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    shard: Annotated[str | None, typer.Option(help="Accept only this shard, such as 0/2.")] = None,
    allow_source: Annotated[
        list[str] | None,
        typer.Option(help="URL or directory to allow fetching from; repeatable. Default: loopback addresses."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="URL of another source that may receive the secret, besides the transfer; repeatable."),
    ] = None,
    rate_limit: Annotated[str | None, typer.Option(help="Limit on the download rate, such as 100MB/s.")] = None,
    job_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for one version to be fetched and loaded.")
    ] = 3600.0,
    watch: Annotated[
        float, typer.Option(min=0.05, help="Seconds between checks that the server still has its data.")
    ] = 1.0,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run the agent of a Cube server, which fetches and activates versions.

    The transfer tells the agent which versions to fetch, verify, load and activate.

    Example: `elasticctr cube agent --endpoint http://127.0.0.1:8000 --data /srv/cube --port 8001 --token-file token`
    """
    from elasticctr.compat.paddle_cube.agent_api import agent_routes
    from elasticctr.cube.agent.process import AgentOptions, AgentProcess
    from elasticctr.net.access import load_tokens

    process = AgentProcess(
        AgentOptions(
            server=endpoint,
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
            tls=read_tls(cert_file, key_file, client_ca_file, ca_file),
            routes=agent_routes,
        )
    )
    address = f"{process.web.scheme}://{host}:{process.web.port}"
    if json:
        print_json({"listening": address, "server": endpoint, "data": str(data)})
    else:
        console.stdout().print(f"cube agent at {address}, server {endpoint}, data {data}", soft_wrap=True, markup=False)
    process.run()


def _parse_shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if match is None or not int(match[1]) < int(match[2]) <= 4096:
        raise ConfigError(f"--shard {text}: expected SHARD/SHARDS such as 0/2; shards count from 0")
    return int(match[1]), int(match[2])


def _parse_rate(text: str | None) -> float | None:
    if text is None:
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"--rate-limit {text}: expected bytes per second such as 100MB/s, 512kB/s or 1GB/s")
    return float(match[1]) * _UNITS[match[2]]
