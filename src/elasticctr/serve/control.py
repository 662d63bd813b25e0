"""HTTP requests other than predictions: status, commands, the description of the API. Knows no sockets.

`Control.handle` takes one request and returns one response, errors included; any thread may call it. It controls a
`FleetCommands`. Other protocols add their own pages (KServe's metadata) as callables.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from urllib.parse import unquote

from elasticctr.errors import ConfigError, DataError, ElasticCTRError, InternalError, NotFound
from elasticctr.net.answers import retry_after
from elasticctr.serve.openapi.document import describe, render_page

log = logging.getLogger(__name__)

JSON = "application/json"
_MODELS = "/v1/models"


class FleetCommands(Protocol):
    """What the API controls. Values are JSON; errors are of the tree; no call waits for a version to load."""

    def status(self) -> dict[str, Any]: ...

    def model_status(self, model: str) -> dict[str, Any]: ...

    def activate(self, model: str, version: int) -> dict[str, Any]: ...

    def rollback(self, model: str) -> dict[str, Any]: ...

    def pause(self, model: str) -> dict[str, Any]: ...

    def resume(self, model: str) -> dict[str, Any]: ...

    def set_variants(self, model: str, variants: Sequence[Mapping[str, Any]], sticky: str | None) -> dict[str, Any]: ...

    def promote(self, model: str, variant: str) -> dict[str, Any]: ...

    def metrics(self) -> str:
        """Prometheus text of the metrics that the native server does not have."""
        ...


@dataclass(frozen=True)
class ControlResponse:
    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


# Method, path, query, body; returns None if it is not one of its pages.
Pages = Callable[[str, str, str, bytes], ControlResponse | None]


def json_response(value: object, status: int = 200) -> ControlResponse:
    return ControlResponse(status, json.dumps(value, ensure_ascii=False, allow_nan=False).encode())


def error_response(error: ElasticCTRError, status: int | None = None) -> ControlResponse:
    """The one shape of errors; the status is what the same error has natively."""
    body = json.dumps(error.describe(), ensure_ascii=False).encode("utf-8", "replace")
    return ControlResponse(status or error.http_status, body, JSON, tuple(retry_after(error).items()))


@cache  # rendering takes longer than a prediction
def _describe() -> ControlResponse:
    return json_response(describe())


class Control:
    def __init__(self, fleet: FleetCommands, pages: Sequence[Pages] = ()) -> None:
        self.fleet = fleet
        self._pages = tuple(pages)

    def handle(self, method: str, path: str, query: str, body: bytes) -> ControlResponse:
        try:
            for pages in self._pages:
                response = pages(method, path, query, body)
                if response is not None:
                    return response
            return self._route(method, path, body)
        except ElasticCTRError as e:
            return error_response(e)
        except Exception:
            log.exception("%s %s", method, path)
            return error_response(InternalError(f"{method} {path} failed; see the server's log"))

    def _route(self, method: str, path: str, body: bytes) -> ControlResponse:
        reads: dict[str, Callable[[], ControlResponse]] = {
            "/v1/status": lambda: json_response(self.fleet.status()),
            _MODELS: lambda: json_response({"models": self.fleet.status()["models"]}),
            "/openapi.json": _describe,
            "/docs": lambda: ControlResponse(200, render_page().encode(), "text/html; charset=utf-8"),
        }
        if path in reads:
            return reads[path]() if method == "GET" else _refuse_method(method, path, "GET, HEAD")
        model, action = _split(path)
        if model is None:
            raise NotFound(f"no such page: {path[:200]}; see /docs")
        if action is None:
            if method != "GET":
                return _refuse_method(method, path, "GET, HEAD")
            return json_response(self.fleet.model_status(model))
        if method != "POST":
            return _refuse_method(method, path, "POST")
        return json_response(self._command(model, action, _parse(body)))

    def _command(self, model: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        fleet = self.fleet
        if action == "activate":
            version = _only(body, version=int)["version"]
            if not 0 < version < 1 << 63:
                raise ConfigError('"version" must be a whole number from 1')
            return fleet.activate(model, version)
        if action == "variants":
            given = _only(body, variants=list, sticky=(str, type(None)))
            if not all(isinstance(variant, dict) for variant in given["variants"]):
                raise ConfigError('"variants" must be a list of objects')
            return fleet.set_variants(model, given["variants"], given["sticky"] or None)
        if action == "promote":
            return fleet.promote(model, _only(body, variant=str)["variant"])
        _only(body)
        commands = {"rollback": fleet.rollback, "pause": fleet.pause, "resume": fleet.resume}
        return commands[action](model)


_ACTIONS = frozenset({"activate", "rollback", "pause", "resume", "variants", "promote"})


def _split(path: str) -> tuple[str | None, str | None]:
    """The model and the action of /v1/models/MODEL[:ACTION]; (None, None) for another path."""
    name = path.removeprefix(_MODELS + "/")
    if name == path or not name or "/" in name:
        return None, None
    model, colon, action = name.rpartition(":")
    if not colon:
        return unquote(name), None
    return (unquote(model), action) if model and action in _ACTIONS else (None, None)


def _refuse_method(method: str, path: str, allowed: str) -> ControlResponse:
    refused = error_response(ConfigError(f"{path} does not support {method}"), 405)
    return ControlResponse(refused.status, refused.body, JSON, (("Allow", allowed),))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise DataError("a key of the body occurs twice")
    return made


def _no_constant(name: str) -> float:
    raise DataError(f"the body is not JSON: {name}")


def _parse(body: bytes) -> dict[str, Any]:
    """The object in the body; empty for an empty body."""
    if not body:
        return {}
    try:
        value = json.loads(body, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise DataError(f"the body is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise DataError("the body must be a JSON object")
    return value


def _only(body: Mapping[str, Any], **kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """The values of these keys, checked for type; other keys are refused. A key that may be None may be absent."""
    for key in body:
        if key not in kinds:
            raise ConfigError(f'unknown key "{key[:80]}"' + (f"; known: {', '.join(kinds)}" if kinds else ""))
    values = {key: body.get(key) for key in kinds}
    # In JSON 7.0 is a whole number.
    values = {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in values.items()}
    for key, kind in kinds.items():
        if not isinstance(values[key], kind) or isinstance(values[key], bool):
            words = {int: "a whole number", str: "a string", list: "a list"}
            wanted = words[kind[0] if isinstance(kind, tuple) else kind]
            raise ConfigError(f'"{key}" must be {wanted}')
    return values
