"""`elasticctr cube transfer`: the process that takes published versions to every cube server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Insecure, ReadToken
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.obs import console


def transfer(
    config: Annotated[Path, typer.Option(help="transfer.yaml, or the transfer.conf of an older installation.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one and prints it.")
    ] = 8099,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    poll: Annotated[float | None, typer.Option(help="Seconds between two looks at the donefile.")] = None,
    address: Annotated[
        str | None, typer.Option(help="How agents reach this transfer, if not at --host: http://10.0.0.1:8099.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the secret shared by transfer, agents and servers. See elasticctr token."),
    ] = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    tls_client_ca: ClientCaOption = None,
    tls_ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Watch a repository and roll out each version to all shards and replicas: prepare, then activate.

    Example: `elasticctr cube transfer --config transfer.yaml --port 8099`
    """
    from elasticctr.compat.paddle_cube.feed import open_feed
    from elasticctr.compat.paddle_cube.transfer_api import transfer_routes
    from elasticctr.config import apply_overrides, load_yaml, parse_settings
    from elasticctr.cube.transfer.process import TransferOptions, TransferProcess, open_repository
    from elasticctr.cube.transfer.settings import TransferSettings

    with_patches = True
    if config.suffix == ".conf":
        from elasticctr.compat.paddle_cube.transfer_conf import read_transfer_conf, transfer_host

        settings, with_patches, ignored = read_transfer_conf(config)
        for line in ignored:
            console.warn(f"{config}: {line}")
        own_host = transfer_host(config)
        if address is None and own_host and port:
            address = f"{'http' if tls_cert is None else 'https'}://{own_host}:{port}"
    else:
        settings = parse_settings(TransferSettings, apply_overrides(load_yaml(config)), str(config))
    tls = read_tls(tls_cert, tls_key, tls_client_ca, tls_ca, settings.tls)
    given = {"poll_s": poll, "address": address, "token_file": token_file, "tls": tls}
    given["read_token_file"] = read_token_file
    changes = {name: value for name, value in given.items() if value is not None}
    settings = parse_settings(TransferSettings, settings.model_dump() | changes, str(config))
    process = TransferProcess(
        TransferOptions(
            settings,
            host,
            port,
            insecure,
            open_repository if settings.format == "repository" else partial(open_feed, with_patches=with_patches),
            transfer_routes,
        )
    )
    own = f"{process.web.scheme}://{host}:{process.web.port}"
    if json:
        print_json({"listening": own, "models": list(settings.models), "owner": process.fleet.owner})
    else:
        line = f"cube transfer at {own}, models {', '.join(settings.models)}, repository {settings.repository}"
        console.stdout().print(line, soft_wrap=True, markup=False)
    process.run()
