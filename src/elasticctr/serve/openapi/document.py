"""The description of the HTTP API: OpenAPI 3.1 for programs, one page without scripts or other hosts for people.

Contains everything the server answers; a test requests every path.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from elasticctr import __version__
from elasticctr.serve.openapi.schemas import ERRORS, SCHEMAS

_TITLES = {
    "Predictions": "Plain JSON: samples in, scores out. See docs/how-to/serve.md.",
    "Models": "Which versions answer, and how to change them.",
    "Server": "Health, metrics and this description.",
    "KServe": "KServe V2 / Open Inference. See docs/reference/kserve.md.",
    "Paddle Serving": "The protocols of Paddle Serving. See docs/migration/paddle-serving.md.",
}


def _ref(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(schema)}}


def _parameter(name: str, where: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": description}


_MODEL = _parameter("model", "path", {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}, "a model's name")
_VERSION = _parameter("version", "path", {"type": "integer", "minimum": 1}, "only this version may answer")
_HEADERS = [
    _parameter("X-Request-Id", "header", {"type": "string"}, "used as the id, up to 256 bytes, if the body has none"),
    _parameter(
        "X-Timeout-Ms", "header", {"type": "integer", "minimum": 1, "maximum": 3_600_000}, "deadline of the answer"
    ),
]


def _operation(
    tag: str,
    name: str,
    summary: str,
    answer: dict[str, Any],
    *,
    errors: tuple[int, ...] = (),
    body: dict[str, Any] | None = None,
    needs_body: bool = True,
    parameters: tuple[dict[str, Any], ...] = (),
    error_schema: str = "Error",
    is_open: bool = False,
) -> dict[str, Any]:
    codes = sorted({*errors, *(() if is_open else (401,)), *(() if body is None else (400, 413, 415))})
    responses: dict[str, Any] = {"200": {"description": "done", "content": answer}}
    for code in codes:
        responses[str(code)] = {"description": ERRORS[code], "content": _json(error_schema)}
    made: dict[str, Any] = {"tags": [tag], "operationId": name, "summary": summary, "responses": responses}
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {"required": needs_body, "content": body}
    if is_open:
        made["security"] = []
    return made


def _predictions() -> dict[str, Any]:
    def predict(name: str, *path: dict[str, Any]) -> dict[str, Any]:
        return {
            "post": _operation(
                "Predictions",
                name,
                "Score samples, candidates of one user, or log lines",
                _json("Scores"),
                body=_json("PredictRequest"),
                parameters=(*path, *_HEADERS),
                errors=(404, 412, 429, 500, 503, 504),
            )
        }

    return {
        "/v1/models/{model}:predict": predict("predict", _MODEL),
        "/v1/models/{model}/versions/{version}:predict": predict("predict_version", _MODEL, _VERSION),
    }


def _models() -> dict[str, Any]:
    def command(name: str, summary: str, body: str) -> dict[str, Any]:
        return {
            "post": _operation(
                "Models",
                name,
                summary,
                _json("ModelStatus"),
                body=_json(body),
                needs_body=body != "Nothing",
                parameters=(_MODEL,),
                errors=(404, 409, 412, 500, 503, 504),
            )
        }

    late = (503, 504)
    return {
        "/v1/status": {"get": _operation("Models", "status", "All models", _json("Status"), errors=late)},
        "/v1/models": {"get": _operation("Models", "models", "All models", _json("Models"), errors=late)},
        "/v1/models/{model}": {
            "get": _operation(
                "Models", "model", "One model", _json("ModelStatus"), parameters=(_MODEL,), errors=(404, *late)
            )
        },
        "/v1/models/{model}:activate": command("activate", "Serve a version of the repository", "Activate"),
        "/v1/models/{model}:rollback": command("rollback", "Go back to the previous version", "Nothing"),
        "/v1/models/{model}:pause": command("pause", "Stop following the donefile", "Nothing"),
        "/v1/models/{model}:resume": command("resume", "Follow the donefile again", "Nothing"),
        "/v1/models/{model}:variants": command("variants", "Start or change an experiment", "Variants"),
        "/v1/models/{model}:promote": command("promote", "Make a variant's version the live one", "Promote"),
    }


def _server() -> dict[str, Any]:
    def text(kind: str) -> dict[str, Any]:
        return {kind: {"schema": {"type": "string"}}}

    late = (503, 504)
    return {
        "/healthz": {
            "get": _operation("Server", "healthz", "Whether the process is alive", _json("Alive"), is_open=True)
        },
        "/readyz": {
            "get": _operation(
                "Server", "readyz", "Whether every model has a version", _json("IsReady"), errors=(503,), is_open=True
            )
        },
        "/metrics": {"get": _operation("Server", "metrics", "Prometheus metrics", text("text/plain"))},
        "/openapi.json": {
            "get": _operation("Server", "openapi", "This description", _json("Description"), errors=late)
        },
        "/docs": {"get": _operation("Server", "docs", "This page", text("text/html"), errors=late)},
    }


def _kserve() -> dict[str, Any]:
    def read(name: str, summary: str, schema: str, *path: dict[str, Any]) -> dict[str, Any]:
        errors = (*([400] if _VERSION in path else []), *([404] if path else []), 503, 504)
        operation = _operation(
            "KServe", name, summary, _json(schema), parameters=path, errors=errors, error_schema="KServeError"
        )
        return {"get": operation}

    def infer(name: str, *path: dict[str, Any]) -> dict[str, Any]:
        length = _parameter(
            "Inference-Header-Content-Length",
            "header",
            {"type": "integer", "minimum": 0},
            "size of the JSON before the binary tensors, in bytes",
        )
        tensors = {"schema": {"type": "string", "format": "binary"}}
        operation = _operation(
            "KServe",
            name,
            "Score tensors, one per slot",
            {**_json("KServeAnswer"), "application/octet-stream": tensors},
            body={**_json("KServeRequest"), "application/octet-stream": tensors},
            parameters=(*path, length, *_HEADERS),
            errors=(404, 412, 429, 500, 503, 504),
            error_schema="KServeError",
        )
        return {"post": operation}

    return {
        "/v2": read("kserve_server", "The server's name and extensions", "Description"),
        "/v2/health/live": read("kserve_live", "Whether the process is alive", "Description"),
        "/v2/health/ready": read("kserve_ready", "Whether every model has a version", "Description"),
        "/v2/repository/index": {
            **read("kserve_index", "All models", "List"),
            "post": _operation(
                "KServe",
                "kserve_index_post",
                "All models, or those that answer",
                _json("List"),
                body=_json("KServeIndex"),
                needs_body=False,
                errors=(503, 504),
                error_schema="KServeError",
            ),
        },
        "/v2/models/stats": read("kserve_stats", "Statistics", "Description"),
        **_each("/v2/models/{model}", lambda name, *path: read(name, "Its inputs and outputs", "Description", *path)),
        **_each("/v2/models/{model}/ready", lambda name, *path: read(name, "Whether it answers", "Description", *path)),
        **_each(
            "/v2/models/{model}/config",
            lambda name, *path: read(name, "Triton's model configuration", "Description", *path),
        ),
        **_each("/v2/models/{model}/stats", lambda name, *path: read(name, "Statistics", "Description", *path)),
        **_each("/v2/models/{model}/infer", infer),
    }


def _each(path: str, make: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A path of a model, and the same path of one of its versions."""
    name = "kserve_model_" + path.rpartition("}")[2].removeprefix("/")
    return {
        path: make(name.rstrip("_"), _MODEL),
        path.replace("{model}", "{model}/versions/{version}"): make(name.rstrip("_") + "_version", _MODEL, _VERSION),
    }


def _paddle() -> dict[str, Any]:
    def call(name: str, summary: str, *path: dict[str, Any]) -> dict[str, Any]:
        operation = _operation(
            "Paddle Serving",
            name,
            summary,
            _json("Description"),
            body=_json("PaddleRequest"),
            parameters=(*path, *_HEADERS),
            errors=(404, 412, 429, 500, 503, 504),
            error_schema="PaddleError",
        )
        return {"post": operation}

    return {
        "/GeneralModelService/inference": call("paddle_inference", "The general model service"),
        "/rec/prediction": call("paddle_prediction", "The web service"),
        "/{model}/GeneralModelService/inference": call("paddle_inference_model", "The same, for one model", _MODEL),
        "/{model}/prediction": call("paddle_prediction_model", "The same, for one model", _MODEL),
    }


@cache
def describe() -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ElasticCTR predictions",
            "version": __version__,
            "description": "Click-through-rate predictions. Every answer names its model and version.",
        },
        "tags": [{"name": name, "description": text} for name, text in _TITLES.items()],
        "security": [{"token": []}, {}],
        "paths": {**_predictions(), **_models(), **_server(), **_kserve(), **_paddle()},
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "if the server requires one"}
            },
        },
    }


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f4f4f4; border-radius: 4px }
code { padding: .1rem .3rem } pre { padding: .7rem; overflow: auto }
b.post { color: #1a6 } b.get { color: #16a } details { margin: .4rem 0 } summary { cursor: pointer }
td { padding: .1rem .8rem .1rem 0; vertical-align: top }
"""


@cache
def render_page() -> str:
    """The description for people: one HTML page that loads nothing else."""
    document = describe()
    parts = [f"<h1>{html.escape(document['info']['title'])}</h1><p>{html.escape(document['info']['description'])}"]
    parts.append('<p>For programs: <a href="/openapi.json">/openapi.json</a>')
    for tag in document["tags"]:
        parts.append(f"<h2>{html.escape(tag['name'])}</h2><p>{html.escape(tag['description'])}")
        for path, methods in document["paths"].items():
            parts += [
                _render(path, method, operation)
                for method, operation in methods.items()
                if operation["tags"] == [tag["name"]]
            ]
    parts.append("<h2>Shapes</h2>")
    for name, schema in document["components"]["schemas"].items():
        text = html.escape(json.dumps(schema, indent=2, ensure_ascii=False))
        parts.append(f'<details id="{name}"><summary><code>{name}</code></summary><pre>{text}</pre></details>')
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>ElasticCTR</title><style>{_STYLE}</style>'
    return head + "\n".join(parts) + "</html>\n"


def _render(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        (f"{one['in']} <code>{html.escape(one['name'])}</code>", html.escape(one["description"]))
        for one in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        rows.append(("body", _render_content(operation["requestBody"]["content"])))
    rows += [
        (code, f"{_render_content(one['content'])} {html.escape(one['description'])}")
        for code, one in operation["responses"].items()
    ]
    table = "".join(f"<tr><td>{name}<td>{what}" for name, what in rows)
    return (
        f'<details><summary><b class="{method}">{method.upper()}</b> <code>{html.escape(path)}</code> '
        f"{html.escape(operation['summary'])}</summary><table>{table}</table></details>"
    )


def _render_content(content: dict[str, Any]) -> str:
    shown = []
    for kind, one in content.items():
        name = one["schema"].get("$ref", "").rpartition("/")[2]
        shown.append(f'<a href="#{name}">{name}</a>' if name else html.escape(kind))
    return " or ".join(shown)
