"""`elasticctr cube status`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from elasticctr.cli.options.access import ClientToken
from elasticctr.cli.options.tls import CaOption, ClientCertOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_table


def status(
    endpoint: Annotated[str, typer.Option(metavar="URL", help="Transfer to ask.")] = "http://127.0.0.1:8099",
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Show every replica with its versions and state.

    Exits with status 15 if a replica is down or behind.

    Example: `elasticctr cube status --endpoint http://127.0.0.1:8099 --token-file token`
    """
    from elasticctr.net.access import read_optional_token
    from elasticctr.net.client import Peer

    with Peer(endpoint, read_optional_token(token_file), tls=read_tls(cert_file, key_file, ca=ca_file)) as peer:
        found = peer.get("/v1/status")
        instances = peer.get("/v1/instances")["instances"]
    is_whole = all(one["state"] == "live" for one in instances)
    if json:
        print_json({**found, "replicas": instances, "all_live": is_whole})
    else:
        print_table(
            "Models", ("model", "#live", "#previous", "state", "note"), [_model(one) for one in found["models"]]
        )
        columns = ("model", "#shard", "#replica", "state", "#active", "versions", "agent", "#seen s ago", "note")
        print_table("Replicas", columns, [_replica(one) for one in instances])
    if not is_whole:
        raise typer.Exit(15)


def _model(model: dict[str, Any]) -> tuple[str, ...]:
    state = model["state"] + (" (paused)" if model["paused"] else "")
    if model["rollout"] is not None:
        state += f" version {model['rollout']['version']}"
    return model["name"], _version(model["live"]), _version(model["previous"]), state, model["trouble"]


def _replica(one: dict[str, Any]) -> tuple[str, ...]:
    versions = " ".join(f"{v['version']}{'' if v['state'] == 'ready' else ':' + v['state']}" for v in one["versions"])
    seen = f"{max(0.0, time.time() - one['seen']):.1f}" if one["seen"] else "never"
    place = (one["model"], str(one["shard"]), str(one["replica"]), one["state"], _version(one["active"]))
    return (*place, versions, one["agent"], seen, one["error"])


def _version(number: int) -> str:
    return str(number) if number else "none"
