"""The coordinator over HTTP: routes, and figures for Prometheus. Every answer says incarnation, generation and era."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticctr.net.access import Tokens
from elasticctr.net.web import MAX_BODY_BYTES, Body, accepted, get, make_app, post
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.status import describe_status

# Metrics by group (GAUC) hold an entry per sample of a chunk.
_MAX_REPORT_BYTES = 256 << 20


def make_coordinator_app(coordinator: Coordinator, tokens: Tokens) -> ASGIApp:
    at = coordinator

    def said(value: dict[str, Any]) -> dict[str, Any]:
        return {**value, "incarnation": at.incarnation, "generation": at.generation, "era": at.era}

    def call(path: str, answer: Callable[[Body], dict[str, Any]], max_bytes: int = MAX_BODY_BYTES) -> Route:
        return post(path, lambda body: said(answer(body)), max_bytes=max_bytes)

    def checkpoint(_: Body) -> Response:
        at.wants_checkpoint.set()
        return accepted(said({}))

    def stop(_: Body) -> Response:
        at.wants_stop.set()
        return accepted(said({}))

    def pservers() -> dict[str, Any]:
        with at.lock:
            return said({"shards": at.shard_list()})

    routes = [
        call("/v1/join", at.join),
        call("/v1/beat", at.beat),
        call("/v1/lease", at.lease),
        call("/v1/progress", at.progress, _MAX_REPORT_BYTES),
        call("/v1/done", at.done, _MAX_REPORT_BYTES),
        call("/v1/give_back", at.give_back),
        call("/v1/leave", at.leave),
        call("/v1/report", at.report),
        get("/v1/pservers", lambda _: pservers()),
        get("/v1/status", lambda _: said(describe_status(at))),
        post("/v1/checkpoint", checkpoint),
        post("/v1/stop", stop),
        get("/metrics", lambda _: PlainTextResponse(prometheus(at), media_type="text/plain; version=0.0.4")),
    ]
    return make_app(routes, tokens)


def prometheus(at: Coordinator) -> str:
    """Figures of the run in Prometheus' text format."""
    status = describe_status(at)
    with at.lock:
        trainers, pservers = len(at.members.trainers()), len(at.members.primaries())
        standbys = sum(m.role == "standby" for m in at.members.pservers())
    chunks = status["chunks"]
    figures: list[tuple[str, str, str, float | None]] = [
        ("incarnation", "gauge", "of this coordinator", at.incarnation),
        ("generation", "gauge", "of the list of pservers", at.generation),
        ("epoch", "gauge", "the run is in, from 0", status["epoch"]),
        ("steps", "gauge", "batches trained on over all trainers", status["step"]),
        ("samples", "gauge", "trained on", status["samples"]),
        ("samples_per_s", "gauge", "since the last line of the log", status["samples_per_s"]),
        ("loss", "gauge", "since the last line of the log", status["loss"]),
        ("auc", "gauge", "progressive, of this epoch", status["auc"]),
        ("chunks", "gauge", "of this pass", chunks.get("total")),
        ("chunks_done", "gauge", "of this pass", chunks.get("done")),
        ("chunks_leased", "gauge", "of this pass", chunks.get("leased")),
        ("rollbacks_total", "counter", "returns to a checkpoint", status["rollbacks"]),
        ("trainers", "gauge", "at work", trainers),
        ("pservers", "gauge", "serving a shard", pservers),
        ("standbys", "gauge", "following one", standbys),
        ("checkpoint_step", "gauge", "of the newest checkpoint", status["checkpoint"].get("step")),
    ]
    lines = []
    for name, kind, about, value in figures:
        if value is not None:
            full = f"elasticctr_coordinator_{name}"
            lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}", f"{full} {value:.10g}"]
    return "\n".join(lines) + "\n"
