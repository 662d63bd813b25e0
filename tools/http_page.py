"""docs/reference/http.md: every path of the prediction server, from its own OpenAPI description."""

from __future__ import annotations

from functools import cache
from typing import Any

from elasticctr.serve.openapi.document import describe

HEAD = """# HTTP of the prediction server

{generated}

A running server describes itself: `GET /openapi.json` returns this as OpenAPI 3.1, `GET /docs` as a page for people.
With a token, every path but `/healthz` and `/readyz` needs `Authorization: Bearer TOKEN`. Statuses are explained
under [errors](errors.md); examples are in the [guide](../how-to/serve.md).

Other servers: [cube server](../how-to/cube-server.md#http11), [transfer](../how-to/cube-rollout.md#transfer-api),
[agent](../how-to/cube-rollout.md#agent-api), [coordinator](../formats/coordinator-api.md).
"""
GUIDES = {
    "Predictions": "Plain JSON: samples in, scores out ([guide](../how-to/serve.md#predict-with-json)).",
    "KServe": "KServe V2, also called Open Inference ([guide](kserve.md)).",
    "Paddle Serving": "The paths of Paddle Serving ([guide](../migration/paddle-serving.md)).",
}


def http_page(generated: str) -> str:
    document = describe()
    parts = [HEAD.format(generated=generated)]
    for tag in document["tags"]:
        name = tag["name"]
        parts += [f"## {name}", "", GUIDES.get(name, tag["description"]), ""]
        parts += ["| request | what it does | body | answer | errors |", "| --- | --- | --- | --- | --- |"]
        for path, methods in document["paths"].items():
            parts += [_row(method, path, one) for method, one in methods.items() if one["tags"] == [name]]
        parts.append("")
    parts += ["## Bodies", "", "Keys in *italics* are optional.", ""]
    for name, schema in document["components"]["schemas"].items():
        if name in _explained():
            parts += [f"### {name}", "", *_fields(schema), ""]
    return "\n".join(parts)


@cache
def _explained() -> set[str]:
    """Bodies with keys or a description; those that leave out unknown slots are like the strict ones."""
    schemas = describe()["components"]["schemas"]
    return {
        name
        for name, one in schemas.items()
        if not name.startswith("Lenient")
        and any(one.get(key) for key in ("properties", "oneOf", "anyOf", "description"))
    }


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    answers = operation["responses"]
    errors = ", ".join(code for code in answers if code != "200")
    body = _content(operation["requestBody"]["content"]) if "requestBody" in operation else ""
    summary = operation["summary"]
    return f"| `{method.upper()} {path}` | {summary} | {body} | {_content(answers['200']['content'])} | {errors} |"


def _content(content: dict[str, Any]) -> str:
    return " or ".join(_shape(one["schema"]) if "$ref" in one["schema"] else kind for kind, one in content.items())


def _fields(schema: dict[str, Any]) -> list[str]:
    shapes = schema.get("oneOf") or schema.get("anyOf")
    if shapes is not None:
        return ["One of:", "", *(f"- {_shape(one)}" for one in shapes if _name(one) in _explained())]
    if not schema.get("properties"):
        return [f"{str(schema['description']).capitalize()}."]
    rows = ["| key | type | meaning |", "| --- | --- | --- |"]
    for key, one in schema["properties"].items():
        if not isinstance(one, dict) or not one or "not" in one:
            continue  # named to be refused
        shown = f"`{key}`" if key in schema.get("required", ()) else f"*`{key}`*"
        rows.append(f"| {shown} | {_shape(one)} | {one.get('description', '')} |")
    return rows


def _name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _shape(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = _name(schema)
        return f"[{name}](#{name.lower()})" if name in _explained() else "JSON"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    choices = schema.get("oneOf") or schema.get("anyOf")
    if choices:
        return " or ".join(_shape(one) for one in choices)
    kinds = schema.get("type", "any value")
    shown = " or ".join([kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"])
    if shown == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    if shown == "object" and schema.get("properties"):
        return "object with " + ", ".join(f"`{key}`" for key in schema["properties"])
    return shown
