"""`elasticctr cube transfer`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from elasticctr.cli.options.access import Host, Insecure, Port, ReadToken, SharedToken
from elasticctr.cli.options.settings import setting
from elasticctr.cli.options.tls import CaOption, CertOption, ClientCaOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.obs import console


def transfer(
    config: Annotated[Path, typer.Option(help="transfer.yaml, or transfer.conf of PaddlePaddle's cube-transfer.")],
    port: Port = 8099,
    host: Host = "127.0.0.1",
    poll: Annotated[float | None, setting(TransferSettings, "poll_s", "--poll")] = None,
    advertise: Annotated[str | None, setting(TransferSettings, "address", "--advertise", metavar="URL")] = None,
    token_file: SharedToken = None,
    read_token_file: ReadToken = None,
    insecure: Insecure = False,
    cert_file: CertOption = None,
    key_file: KeyOption = None,
    client_ca_file: ClientCaOption = None,
    ca_file: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Run the transfer, which rolls versions out to all Cube servers.

    It watches a repository, prepares each new version on all shards and replicas, then activates it everywhere.

    Example: `elasticctr cube transfer --config transfer.yaml --port 8099`
    """
    from elasticctr.compat.paddle_cube.feed import open_feed
    from elasticctr.compat.paddle_cube.transfer_api import transfer_routes
    from elasticctr.config import apply_overrides, load_yaml, parse_settings
    from elasticctr.cube.transfer.process import TransferOptions, TransferProcess, open_repository

    with_patches = True
    if config.suffix == ".conf":
        from elasticctr.compat.paddle_cube.transfer_conf import read_transfer_conf, transfer_host

        settings, with_patches, ignored = read_transfer_conf(config)
        for line in ignored:
            console.warn(f"{config}: {line}")
        own_host = transfer_host(config)
        if advertise is None and own_host and port:
            advertise = f"{'http' if cert_file is None else 'https'}://{own_host}:{port}"
    else:
        settings = parse_settings(TransferSettings, apply_overrides(load_yaml(config)), str(config))
    tls = read_tls(cert_file, key_file, client_ca_file, ca_file, settings.tls)
    given = {"poll_s": poll, "address": advertise, "token_file": token_file, "tls": tls}
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
