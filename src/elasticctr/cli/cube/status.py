"""`elasticctr cube status`: which replica serves which version, as a transfer knows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.options.tls import CaOption, KeyOption, ShownCertOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_table


def status(
    transfer: Annotated[str, typer.Option(help="Address of the transfer.")] = "http://127.0.0.1:8099",
    token_file: Annotated[Path | None, typer.Option(help="File whose first line is the secret.")] = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Show shards and replicas with their versions and states. Ends with 15 if a replica is down or behind.

    Example: `elasticctr cube status --transfer http://127.0.0.1:8099 --token-file token`
    """
    from elasticctr.net.access import read_optional_token
    from elasticctr.net.client import Peer

    with Peer(transfer, read_optional_token(token_file), tls=read_tls(tls_cert, tls_key, ca=tls_ca)) as peer:
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
