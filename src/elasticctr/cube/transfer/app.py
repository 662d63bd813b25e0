"""Transfer's HTTP API: status, commands, and the builds that agents fetch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticctr.cube.shared.names import check_model
from elasticctr.cube.transfer.instance import Holding, Instance
from elasticctr.cube.transfer.metrics import TransferMetrics
from elasticctr.cube.transfer.rollout import ModelRollout
from elasticctr.errors import FailedPrecondition, NotFound
from elasticctr.net.access import Tokens
from elasticctr.net.web import Body, get, make_app, post
from elasticctr.versions.manifest import check_version

if TYPE_CHECKING:
    from elasticctr.cube.transfer.process import TransferProcess


class _SendFiles(FileResponse):
    chunk_size = 1 << 20


def make_transfer_app(process: TransferProcess, tokens: Tokens, routes: Sequence[Route] = ()) -> ASGIApp:
    """An app of these routes and `routes` of other APIs for the same process:

    GET  /v1/status                     models with live version and rollout
    GET  /v1/instances                  every replica with its versions
    GET  /v1/history?model=             rollouts, newest last
    POST /v1/rollback {model, version?} an earlier version, by default the previous one
    POST /v1/rollout  {model, version}  any published version
    POST /v1/pause, /v1/resume {model?}
    GET  /v1/files/…                    builds, with ranges
    GET  /metrics   /healthz
    """
    registry = CollectorRegistry()
    registry.register(TransferMetrics(process))

    def model_of(body: Body) -> ModelRollout:
        if body.get("model") is None and len(process.models) == 1:
            return next(iter(process.models.values()))
        return find_model(process, body.get("model"))

    def rollback(body: Body) -> Any:
        rollout = model_of(body)
        version = body.get("version") or rollout.journal.previous
        if not version:
            raise FailedPrecondition(f"{rollout.model}: no version was live before version {rollout.journal.live}")
        return rollout.ask(check_version(version), "rollback")

    def set_paused(body: Body, paused: bool) -> Any:
        chosen = [model_of(body)] if body.get("model") is not None else list(process.models.values())
        return {"models": [rollout.pause(paused) for rollout in chosen]}

    def history(request: Request) -> Any:
        model = request.query_params.get("model")
        chosen = [find_model(process, model)] if model is not None else list(process.models.values())
        return {"models": [{"name": one.model, "history": one.journal.history} for one in chosen]}

    def file(request: Request) -> Response:
        parts = request.path_params
        path = process.builds.file(parts["form"], parts["model"], parts["version"], parts["shard"], parts["name"])
        return _SendFiles(path, media_type="application/octet-stream")

    def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return make_app(
        [
            get("/v1/status", lambda _: describe(process)),
            get("/v1/instances", lambda _: {"instances": describe_instances(process)}),
            get("/v1/history", history),
            post("/v1/rollback", rollback),
            post("/v1/rollout", lambda body: model_of(body).ask(check_version(body.get("version")), "request")),
            post("/v1/pause", lambda body: set_paused(body, True)),
            post("/v1/resume", lambda body: set_paused(body, False)),
            get("/v1/files/{form}/{model}/{version}/{shard}/{name}", file),
            get("/metrics", metrics),
            *routes,
        ],
        tokens,
    )


def find_model(process: TransferProcess, model: object) -> ModelRollout:
    if check_model(model) not in process.models:
        raise NotFound(f"no model {model!r} here, only {', '.join(process.models)}")
    return process.models[str(model)]


def describe(process: TransferProcess) -> dict[str, Any]:
    fleet = process.fleet
    return {
        "owner": fleet.owner,
        "epoch": fleet.epoch,
        "leading": fleet.is_leading,
        "standby": fleet.holder or None,
        "repository": process.settings.repository,
        "shards": fleet.shards,
        "instances": len(fleet.instances),
        "usable": len(fleet.usable()),
        "uptime_s": round(time.time() - process.started_s, 3),
        "models": [describe_model(process, rollout) for rollout in process.models.values()],
    }


def describe_model(process: TransferProcess, rollout: ModelRollout) -> dict[str, Any]:
    journal, current = rollout.journal, rollout.journal.rollout
    names = [one.name for one in process.fleet.instances if state_of(one, rollout) != "live"]
    return {
        "name": rollout.model,
        "state": journal.state,
        "live": journal.live,
        "previous": journal.previous,
        "paused": journal.paused,
        "behind": names if journal.live else [],
        "trouble": rollout.trouble,
        "rollout": None
        if current is None
        else {
            "id": current.id,
            "version": current.version,
            "reason": current.reason,
            "started": current.started,
            "decided": current.decided or None,
            "steps": [{"version": step["version"], "kind": step["kind"]} for step in current.steps],
        },
        "last": journal.history[-1] if journal.history else None,
    }


def describe_instances(process: TransferProcess) -> list[dict[str, Any]]:
    found = []
    for one in process.fleet.instances:
        for rollout in process.models.values():
            holding = one.snapshot.models.get(rollout.model, Holding())
            found.append(
                {
                    "shard": one.shard,
                    "replica": one.replica,
                    "agent": one.agent,
                    "server": one.server,
                    "model": rollout.model,
                    "state": state_of(one, rollout),
                    "active": holding.active,
                    "previous": holding.previous,
                    "versions": [{"version": v.version, "state": v.state} for v in holding.versions.values()],
                    "error": one.snapshot.error or one.trouble.get(rollout.model, ""),
                    "seen": one.snapshot.at_s,
                }
            )
    return found


def state_of(instance: Instance, rollout: ModelRollout) -> str:
    """Returns down, empty, live, behind, or other (the live number with other contents)."""
    if not instance.snapshot.is_usable:
        return "down"
    holding = instance.snapshot.models.get(rollout.model, Holding())
    if not holding.active:
        return "empty"
    if holding.active != rollout.journal.live:
        return "behind"
    return "other" if holding.has_active_other_than({rollout.journal.live: rollout.journal.live_identity}) else "live"
