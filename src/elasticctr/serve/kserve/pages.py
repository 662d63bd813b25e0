"""KServe V2's HTTP paths other than predictions, as one of Control's pages. Errors are `{"error": "…"}`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from elasticctr.errors import DataError, ElasticCTRError, NotFound, Unavailable
from elasticctr.net.answers import retry_after
from elasticctr.serve.control import ControlResponse, json_response
from elasticctr.serve.kserve import metadata as kserve

_ROOT = "/v2"


class KServePages:
    def __init__(self, fleet: kserve.ModelDirectory, metrics: Callable[[], str]) -> None:
        """`metrics` returns the server's Prometheus text."""
        self._fleet = fleet
        self._metrics = metrics

    def __call__(self, method: str, path: str, query: str, body: bytes) -> ControlResponse | None:
        if path != _ROOT and not path.startswith(_ROOT + "/"):
            return None
        try:
            return self._answer(method, [unquote(part) for part in path.split("/")[2:]], body)
        except ElasticCTRError as e:
            return _error(e)

    def _answer(self, method: str, parts: list[str], body: bytes) -> ControlResponse:
        is_index = parts == ["repository", "index"]
        if method not in (("GET", "HEAD", "POST") if is_index else ("GET", "HEAD")):
            allowed = "GET, HEAD, POST" if is_index else "GET, HEAD"
            return ControlResponse(
                405, _error_body(f"this path does not support {method}"), headers=(("Allow", allowed),)
            )
        match parts:
            case [] | [""]:
                return json_response(kserve.describe_server())
            case ["health", "live"]:
                return json_response({"live": True})
            case ["health", "ready"]:
                is_ready, reason = kserve.is_server_ready(self._fleet)
                return json_response({"ready": True}) if is_ready else _error(Unavailable(reason))
            case ["repository", "index"]:
                return json_response(kserve.list_models(self._fleet, _asks_for_ready(body)))
            case ["models", "stats"]:
                return self._statistics("", "")
            case ["models", model, "versions", version, *rest]:
                return self._model(model, version, rest)
            case ["models", model, *rest]:
                return self._model(model, "", rest)
        raise NotFound("KServe V2 has no such path here; see docs/reference/kserve.md")

    def _model(self, model: str, version: str, rest: list[str]) -> ControlResponse:
        match rest:
            case []:
                return json_response(kserve.describe_model(self._fleet, model, version))
            case ["ready"]:
                if kserve.is_model_ready(self._fleet, model, version):
                    return json_response({"name": model, "ready": True})
                return _error(Unavailable(f"model {model} {version} is not ready".replace("  ", " ")))
            case ["config"]:
                return json_response(kserve.configure_model(self._fleet, model, version))
            case ["stats"]:
                return self._statistics(model, version)
            case ["infer"]:
                return ControlResponse(405, _error_body("send a request with POST"), headers=(("Allow", "POST"),))
        raise NotFound("KServe V2 has no such path here; see docs/reference/kserve.md")

    def _statistics(self, model: str, version: str) -> ControlResponse:
        if model:
            kserve.is_model_ready(self._fleet, model, version)
        return json_response({"model_stats": kserve.collect_statistics(self._metrics(), model, version)})


def _asks_for_ready(body: bytes) -> bool:
    if not body:
        return False
    try:
        given: Any = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise DataError(f"the body is not JSON: {e}") from None
    ready = given.get("ready", False) if isinstance(given, dict) else None
    if not isinstance(ready, bool):
        raise DataError('the body must be like {"ready": true}')
    return ready


def _error_body(message: str) -> bytes:
    return json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")


def _error(error: ElasticCTRError) -> ControlResponse:
    return ControlResponse(error.http_status, _error_body(str(error)), headers=tuple(retry_after(error).items()))
