"""The agent's HTTP API, thin over `Agent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticctr.cube.agent.agent import Agent
from elasticctr.cube.agent.jobs import AgentJob
from elasticctr.cube.agent.request import parse_prepare
from elasticctr.cube.shared.names import check_digest, check_model
from elasticctr.net.access import Tokens
from elasticctr.net.web import Body, accepted, get, make_app, post
from elasticctr.versions.manifest import check_version


def make_agent_app(agent: Agent, tokens: Tokens, routes: Sequence[Route] = ()) -> ASGIApp:
    """An app of these routes and `routes` of other APIs for the same agent:

    POST /v1/lease     {owner, epoch, ttl_s, address}   take or renew the right to change things here
    POST /v1/release   {owner}                       give it back
    POST /v1/prepare   {model, version, shard, shards, source, sha256, identity, chain, lease}
    POST /v1/activate  {model, version, identity, lease}    POST /v1/retire {model, version, lease}
    POST /v1/cancel    {model, lease}                stop the job of a model
    GET  /v1/status    /v1/jobs   /metrics   /healthz
    """
    registry = CollectorRegistry()
    registry.register(_Metrics(agent))

    def prepare(body: Body) -> Any:
        wanted = parse_prepare(body)
        agent.lease.check(body.get("lease"))
        return _answer_job(agent.prepare(wanted))

    def activate(body: Body) -> Any:
        model, version = check_model(body.get("model")), check_version(body.get("version"))
        identity = body.get("identity")
        agent.lease.check(body.get("lease"))
        return agent.activate(model, version, None if identity is None else check_digest(identity))

    def retire(body: Body) -> Any:
        model, version = check_model(body.get("model")), check_version(body.get("version"))
        agent.lease.check(body.get("lease"))
        return agent.retire(model, version)

    def cancel(body: Body) -> Any:
        model = check_model(body.get("model"))
        agent.lease.check(body.get("lease"))
        return {"cancelled": agent.jobs.cancel(model)}

    def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return make_app(
        [
            post("/v1/lease", lambda body: agent.lease.take(*map(body.get, ("owner", "epoch", "ttl_s", "address")))),
            post("/v1/release", lambda body: agent.lease.release(body.get("owner"))),
            post("/v1/prepare", prepare),
            post("/v1/activate", activate),
            post("/v1/retire", retire),
            post("/v1/cancel", cancel),
            get("/v1/status", lambda _: agent.status()),
            get("/v1/jobs", lambda _: {"jobs": [job.describe() for job in agent.jobs.all()]}),
            get("/metrics", metrics),
            *routes,
        ],
        tokens,
    )


def _answer_job(job: AgentJob) -> JSONResponse:
    # A version that is already here is ready within milliseconds: save the caller a second request.
    job.finished.wait(0.05)
    answer = job.describe()
    return JSONResponse(answer) if job.state == "ready" else accepted(answer)


class _Metrics(Collector):
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> list[Metric]:
        agent = self._agent
        status = agent.status()
        up = GaugeMetricFamily("cube_agent_server_up", "1 while the cube server answers", status["server"]["reachable"])
        free = GaugeMetricFamily(
            "cube_agent_disk_free_bytes", "free on the disk of --data", status["disk"]["free_bytes"]
        )
        epoch = GaugeMetricFamily(
            "cube_agent_lease_epoch", "highest epoch granted to a transfer", status["lease"]["epoch"]
        )
        active = GaugeMetricFamily("cube_agent_active_version", "version the server answers from", labels=["model"])
        stored = GaugeMetricFamily("cube_agent_stored_versions", "complete versions on the disk", labels=["model"])
        for model in status["models"]:
            active.add_metric([model["name"]], model["active"])
            stored.add_metric([model["name"]], sum(version["stored"] for version in model["versions"]))
        running = GaugeMetricFamily(
            "cube_agent_jobs_running", "jobs running", sum(j.is_running for j in agent.jobs.all())
        )
        counters = {
            "cube_agent_fetched_bytes": ("bytes fetched from sources", agent.fetcher.bytes_fetched),
            "cube_agent_refetched": ("downloads fetched again because they arrived damaged", agent.fetcher.refetched),
            "cube_agent_activations": ("versions activated", agent.activations),
            "cube_agent_restores": ("times versions were loaded again into a restarted server", agent.restores),
        }
        families = [CounterMetricFamily(name, text, value) for name, (text, value) in counters.items()]
        return [up, free, epoch, active, stored, running, *families]
