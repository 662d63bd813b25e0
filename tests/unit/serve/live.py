"""A prediction server in this process with one made version, and a fleet that records commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from tests.unit.serve.making import Made, make_graph, make_schema

from elasticctr.data.batch import Batch
from elasticctr.errors import FailedPrecondition, NotFound
from elasticctr.serve.activation.served_version import make_served_version
from elasticctr.serve.activation.variants import parse_variants
from elasticctr.serve.control import Control
from elasticctr.serve.kserve.pages import KServePages
from elasticctr.serve.server import PredictServer, PredictServerOptions
from elasticctr.serve.settings import LimitSettings
from elasticctr.versions.samples import make_batch
from elasticctr.versions.serving_schema import ServingSchema


class RememberingFleet:
    """Model `ctr` with version 7. Commands change nothing but `told`."""

    def __init__(self, schema: ServingSchema) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.schema = schema

    def status(self) -> dict[str, Any]:
        return {"ready": True, "reason": None, "models": [self.model_status("ctr")]}

    def model_status(self, model: str) -> dict[str, Any]:
        if model != "ctr":
            raise NotFound(f"no model {model!r}; this server has ctr")
        return {"name": "ctr", "live": 7, "ready": [{"version": 7}], "variants": []}

    def _do(self, what: str, model: str, *given: Any) -> dict[str, Any]:
        status = self.model_status(model)
        self.told.append((what, *given))
        return status

    def activate(self, model: str, version: int) -> dict[str, Any]:
        return self._do("activate", model, version)

    def rollback(self, model: str) -> dict[str, Any]:
        self.model_status(model)
        raise FailedPrecondition("no version was served before this one")

    def pause(self, model: str) -> dict[str, Any]:
        return self._do("pause", model)

    def resume(self, model: str) -> dict[str, Any]:
        return self._do("resume", model)

    def set_variants(self, model: str, variants: Sequence[Mapping[str, Any]], sticky: str | None) -> dict[str, Any]:
        parse_variants(variants, [])
        return self._do("variants", model, list(variants), sticky)

    def promote(self, model: str, variant: str) -> dict[str, Any]:
        return self._do("promote", model, variant)

    def metrics(self) -> str:
        return ""

    def serving_schema(self, model: str, version: int | None = None) -> tuple[int, ServingSchema]:
        self.model_status(model)
        if version not in (None, 7):
            raise NotFound(f"ctr has no version {version}")
        return 7, self.schema


class Live:
    """What a test needs of a running server."""

    def __init__(self, server: PredictServer, made: Made, graph: bytes, fleet: RememberingFleet) -> None:
        self.server, self.made, self.schema, self.graph, self.fleet = server, made, fleet.schema, graph, fleet
        self.client = httpx.Client(base_url=self.url, verify=False, timeout=60)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port

    @property
    def url(self) -> str:
        scheme = "http" if self.server.options.tls_cert is None else "https"
        return f"{scheme}://127.0.0.1:{self.server.port}"

    def post(self, body: Any, path: str = "/v1/models/ctr:predict", **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, bytes):
            return self.client.post(path, content=body, headers=sent)
        return self.client.post(path, json=body, headers=sent)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers)

    def expected(self, batch: Batch) -> list[Any]:
        """Scores as an answer has them: of one label flat."""
        scores = self.made.expected(self.schema, self.graph, batch)
        made: list[Any] = (scores[:, 0] if len(self.schema.labels) == 1 else scores).tolist()
        return made

    def still_answers(self) -> None:
        """The scores have not changed."""
        feasign = int(self.made.feasigns[3])
        answer = self.post({"samples": [{"ad": [feasign]}], "values": "feasigns"}).json()
        sparse: list[list[list[int]]] = [
            [[feasign]] if slot.name == "ad" else [[]] for slot in self.schema.samples.sparse
        ]
        batch = make_batch(self.schema.samples, sparse, [[0.0] * self.schema.samples.dense_dim])
        assert np.allclose(answer["scores"], self.expected(batch), atol=1e-6)


def server_options(**given: Any) -> PredictServerOptions:
    """Options of a server on any free port, limits among them."""
    limits = {name: given.pop(name) for name in LimitSettings.model_fields if name in given}
    patient = {"timeout_ms": 60_000, "queue_ms": 60_000}
    return PredictServerOptions(limits=LimitSettings(**{**patient, **limits}), **{"port": 0, "workers": 2, **given})


@contextmanager
def live_server(folder: Path, labels: tuple[str, ...] = ("click",), **options: Any) -> Iterator[Live]:
    """Serves version 7 of `ctr` as long as the block lasts. `options` are those of server_options."""
    made, schema, graph = Made(folder), make_schema(labels), make_graph(len(labels))
    version = make_served_version("ctr", 7, schema, graph, made.local(), None, "made")
    with PredictServer(server_options(**options)) as server:
        fleet = RememberingFleet(schema)
        server.set_models([("ctr", "", 0, True, [("live", 1.0, False, version)])])
        server.set_ready(True)
        server.use(Control(fleet, [KServePages(fleet, server.metrics)]))
        live = Live(server, made, graph, fleet)
        with live.client:
            yield live
