"""Which Cube servers to ask: `--config`, `--endpoint`, `--token-file`, `--model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.settings import setting
from elasticctr.config.tls import TlsSettings
from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings, load_conf, parse_addresses
from elasticctr.errors import ConfigError
from elasticctr.net.access import read_token

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Table: MODEL/TABLE, or TABLE with --model.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Client settings: cube.yaml or cube.conf.")]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="ADDRESSES",
        help="Servers as HOST:PORT, instead of --config: commas separate replicas, semicolons separate shards.",
    ),
]
ModelOption = Annotated[str | None, setting(CubeSettings, "model", "--model")]
VersionOption = Annotated[
    int | None, typer.Option("--version", help="Read this version instead of the active one.", min=1)
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", help="Seconds for one lookup; default: `timeout_ms` of --config.", min=0.001),
]


def read_clusters(config: Path | None, endpoint: str | None, model: str | None) -> tuple[CubeSettings, ...]:
    if (config is None) == (endpoint is None):
        raise ConfigError("name the servers to ask with either --config FILE or --endpoint HOST:PORT")
    if endpoint is not None:
        return (parse_addresses(endpoint, model=model, timeout_ms=1000),)
    assert config is not None
    return load_conf(config, model)


def open_client(
    config: Path | None,
    endpoint: str | None,
    model: str | None,
    token_file: Path | None,
    override: Mapping[str, int] | None = None,
    tls: TlsSettings | None = None,
) -> CubeClient:
    """`override` and `tls` take precedence over the settings."""
    token = None if token_file is None else read_token(token_file)
    changes: dict[str, object] = {**(override or {}), **({} if tls is None else {"tls": tls})}
    clusters = [cluster.model_copy(update=changes) for cluster in read_clusters(config, endpoint, model)]
    return CubeClient(clusters, token)
