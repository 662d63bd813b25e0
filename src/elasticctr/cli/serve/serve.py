"""`elasticctr serve`: the prediction server. Imported without the other commands (entry.py), so that it starts fast."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elasticctr.cli.options.access import Insecure, ReadToken, ServerToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.obs import console

if TYPE_CHECKING:
    from elasticctr.serve.process import PredictServerAddress
    from elasticctr.serve.settings import ServeSettings


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="serve.yaml: several models, variants, limits. Flags go before it.")
    ] = None,
    repo: Annotated[str | None, typer.Option(help="Repository of published versions.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the repository to serve.")] = None,
    cube: Annotated[
        Path | None, typer.Option(help="cube.yaml or cube.conf of the Cube with its rows; default: in this process.")
    ] = None,
    index_dir: Annotated[
        Path | None, typer.Option(help="Where index files and state are kept; default: a cache directory.")
    ] = None,
    poll: Annotated[float | None, typer.Option(help="Seconds between two looks at the donefile (1).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1); 0.0.0.0: all.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port for HTTP and bRPC (8500); 0: any free one.", min=0, max=65535)
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port for gRPC (8501); 0: any free one, -1: none.", min=-1, max=65535)
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Workers that score; default: one per core.", min=0)] = None,
    token_file: ServerToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    access_log: Annotated[Path | None, typer.Option(help="File with a JSON line per request; -: stderr.")] = None,
    request_log: Annotated[Path | None, typer.Option(help="Directory that keeps requests and their scores.")] = None,
    request_log_sample: Annotated[
        float | None, typer.Option(help="Part of the requests that is kept (1).", min=0, max=1)
    ] = None,
    request_log_max_gib: Annotated[
        float | None, typer.Option(help="Disk that kept requests may take (10); the oldest go.")
    ] = None,
    drain: Annotated[
        float | None, typer.Option(help="Seconds to go on answering after SIGTERM (5), while not ready.", min=0)
    ] = None,
    missing_rows: Annotated[
        Literal["fail", "degrade"] | None, typer.Option(help="When too few of a request's rows are found (degrade).")
    ] = None,
    dead_shards: Annotated[
        Literal["fail", "degrade"] | None, typer.Option(help="When a shard of the Cube does not answer (fail).")
    ] = None,
    late_cube: Annotated[Literal["fail", "degrade"] | None, typer.Option(help="When the Cube is late (fail).")] = None,
    paddle_conf: Annotated[
        Path | None, typer.Option(help="Directory with the settings of a Paddle Serving installation, read as it is.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Answer predictions: plain JSON, KServe, Paddle Serving and bRPC, from versions of a repository.

    Prints where it listens, takes up versions as they are published, each checked before it answers, and serves until
    SIGTERM. Ready (`/readyz`) once every model has a version.

    Example: `elasticctr serve --repo repo --model ctr --port 8500`
    """
    from elasticctr.serve.process import run
    from elasticctr.serve.settings import load_settings

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
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "tls_ca": tls_ca,
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
    """What the files of an older installation say, as serve.yaml would have it; what they cannot say is told."""
    from elasticctr.compat.paddle_serving import read_serving

    found = read_serving(directory, repo)
    for note in found.notes:
        console.warn(note)
    return found.settings
