"""How commands are told which cube servers to ask: `--conf`, `--at`, `--token-file`, `--model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.config.tls import TlsSettings
from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings, load_conf, parse_addresses
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_token

ConfOption = Annotated[Path | None, typer.Option(help="Client settings: cube.yaml, or an older cube.conf.")]
AtOption = Annotated[
    str | None, typer.Option(help="Servers, instead of --conf: replicas by comma, shards by semicolon, in order.")
]
ModelOption = Annotated[str | None, typer.Option(help="Model of a TABLE that does not name its own.")]
TokenOption = Annotated[Path | None, typer.Option(help="File with the servers' secret.")]
TimeoutOption = Annotated[float | None, typer.Option(help="Seconds for one lookup; default: the settings'.", min=0.001)]


def read_clusters(conf: Path | None, at: str | None, model: str | None) -> tuple[CubeSettings, ...]:
    if (conf is None) == (at is None):
        raise ConfigError("say which servers to ask: --conf FILE or --at HOST:PORT, one of them")
    if at is not None:
        return (parse_addresses(at, model=model, timeout_ms=1000),)
    assert conf is not None
    return load_conf(conf, model)


def open_client(
    conf: Path | None,
    at: str | None,
    model: str | None,
    token_file: Path | None,
    override: Mapping[str, int] | None = None,
    tls: TlsSettings | None = None,
) -> CubeClient:
    """`override` and `tls` go before what the settings say."""
    token = None if token_file is None else read_token(token_file)
    changes: dict[str, object] = {**(override or {}), **({} if tls is None else {"tls": tls})}
    clusters = [cluster.model_copy(update=changes) for cluster in read_clusters(conf, at, model)]
    return CubeClient(clusters, token)
