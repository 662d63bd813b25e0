"""`elasticctr serve`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticctr.cli.options.access import Insecure, ReadToken, ServerToken
from elasticctr.cli.options.settings import setting
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.obs import console
from elasticctr.serve.feedback.settings import RequestLogSettings
from elasticctr.serve.settings import OnTrouble, PolicySettings, ServedModelSettings, ServeSettings, load_settings

if TYPE_CHECKING:
    from elasticctr.serve.process import PredictServerAddress


def serve(
    config: Annotated[
        Path | None, typer.Option(help="serve.yaml: several models, variants, limits. Other options override it.")
    ] = None,
    repo: Annotated[str | None, setting(ServedModelSettings, "repo")] = None,
    model: Annotated[str | None, setting(ServedModelSettings, "name", "--model")] = None,
    cube: Annotated[Path | None, setting(ServedModelSettings, "cube")] = None,
    index_dir: Annotated[Path | None, setting(ServedModelSettings, "index_dir")] = None,
    poll: Annotated[float | None, setting(ServedModelSettings, "poll_s", "--poll")] = None,
    host: Annotated[str | None, setting(ServeSettings, "host")] = None,
    port: Annotated[int | None, setting(ServeSettings, "port")] = None,
    grpc_port: Annotated[int | None, setting(ServeSettings, "grpc_port")] = None,
    threads: Annotated[int | None, setting(ServeSettings, "threads")] = None,
    token_file: ServerToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    access_log: Annotated[Path | None, setting(ServeSettings, "access_log")] = None,
    request_log: Annotated[Path | None, setting(RequestLogSettings, "directory", "--request-log")] = None,
    request_log_sample: Annotated[float | None, setting(RequestLogSettings, "sample", "--request-log-sample")] = None,
    request_log_max_gib: Annotated[
        float | None, setting(RequestLogSettings, "max_gib", "--request-log-max-gib")
    ] = None,
    drain: Annotated[float | None, setting(ServeSettings, "drain_s", "--drain")] = None,
    missing_rows: Annotated[OnTrouble | None, setting(PolicySettings, "missing_rows")] = None,
    dead_shards: Annotated[OnTrouble | None, setting(PolicySettings, "dead_shards")] = None,
    late_cube: Annotated[OnTrouble | None, setting(PolicySettings, "late_cube")] = None,
    paddle_conf: Annotated[
        Path | None, typer.Option(help="Directory with the configuration of a Paddle Serving installation.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a prediction server.

    Serves JSON, KServe, Paddle Serving and bRPC. It follows the repository: each newly published version is verified
    and then activated. Prints its addresses, is ready (`/readyz`) once every model has a version, and serves until
    SIGTERM.

    Example: `elasticctr serve --repo repo --model ctr --port 8500`
    """
    from elasticctr.serve.process import run

    policy = {"missing_rows": missing_rows, "dead_shards": dead_shards, "late_cube": late_cube}
    policy = {key: value for key, value in policy.items() if value is not None}
    flags: dict[str, Any] = {
        "repo": repo,
        "name": model,
        "cube": cube,
        "index_dir": index_dir,
        "poll_s": poll,
        "policy": policy or None,
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "threads": threads,
        "token_file": token_file,
        "read_token_file": read_token_file,
        "insecure": insecure or None,
        "tls_cert": cert_file,
        "tls_key": key_file,
        "tls_client_ca": client_ca_file,
        "tls_ca": ca_file,
        "access_log": access_log,
        "request_log_directory": None if request_log is None else str(request_log),
        "request_log_sample": request_log_sample,
        "request_log_max_gib": request_log_max_gib,
        "drain_s": drain,
    }
    base = None
    if paddle_conf is not None:
        base = _read_paddle(paddle_conf, flags.pop("repo"))
    settings = load_settings(config, flags, base=base)
    run(settings, lambda listening: _announce(listening, settings, json))
    sys.stdout.flush()
    # A version may be loading; what it would become is of no use any more.
    os._exit(0)


def _announce(listening: PredictServerAddress, settings: ServeSettings, as_json: bool) -> None:
    if as_json:
        print_json(asdict(listening))
    else:
        grpc = "" if listening.grpc is None else f", gRPC {listening.grpc}"
        names = ", ".join(listening.models)
        typer.echo(f"elasticctr serve {listening.pid} at {listening.http}{grpc}: {names}")
    sys.stdout.flush()


def _read_paddle(directory: Path, repo: str | None) -> dict[str, Any]:
    """Paddle Serving's files as serve.yaml settings, with a warning for everything that has no equivalent."""
    from elasticctr.compat.paddle_serving import read_serving

    found = read_serving(directory, repo)
    for note in found.notes:
        console.warn(note)
    return found.settings
