"""Decodes logged requests a second time.

In Python and apart from the server's own code: what both make of a request is what `feedback replay` compares.
Requests whose text was not kept, and forms of a protocol that are not read here, decode to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from elasticctr.data.schema import Format, Schema, SparseSlot
from elasticctr.errors import DataError
from elasticctr.serve.feedback.decode_kserve import decode_grpc, decode_http
from elasticctr.serve.feedback.decode_paddle import decode_brpc, decode_paddle
from elasticctr.serve.feedback.decoded import Decoded
from elasticctr.serve.feedback.log import LoggedRequest


def decode(request: LoggedRequest, schema: Schema) -> Decoded | None:
    """None if there is nothing to decode. Raises DataError if an answered request makes no sense."""
    reader = _READERS.get(request.protocol)
    if reader is None or request.body is None:
        return None
    try:
        return reader(request, request.body, schema)
    except (DataError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
        raise DataError(f"request {request.id!r}: cannot be read again: {type(e).__name__}: {e}") from None


def _decode_json(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded:
    entry = json.loads(body)
    if "lines" in entry:
        lines = [line.rstrip("\r\n") for line in entry["lines"]]
        return Decoded(len(lines), lines=lines, format=entry.get("format"))
    samples = entry["samples"] if "samples" in entry else entry["candidates"]
    shared = entry.get("user", {})
    decoded = Decoded(len(samples))
    for slot in schema.sparse:
        if any(slot.name in one for one in (shared, *samples)):
            given = [_listed(_pick(slot.name, sample, shared)) for sample in samples]
            decoded.sparse[slot.name] = [[str(v) for v in values if v != ""] for values in given]
            if _is_typed(slot, schema) and all(isinstance(v, int) for values in given for v in values):
                decoded.final.add(slot.name)
    for dense in schema.dense:
        decoded.dense[dense.name] = [_floats(_pick(dense.name, sample, shared)) for sample in samples]
    if entry.get("values") == "feasigns":
        decoded.final = {slot.name for slot in schema.logged}
    return decoded


def _pick(name: str, sample: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """A sample's own value, if it has one: null is none, an empty list is one."""
    own = sample.get(name)
    return shared.get(name) if own is None else own


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _floats(value: Any) -> list[float] | None:
    return None if value is None else [float(v) for v in _listed(value)]


def _is_typed(slot: SparseSlot, schema: Schema) -> bool:
    """Whether the value is a feasign already, which in Parquet its type says."""
    return schema.format is Format.PARQUET and slot.values == "auto"


_READERS: dict[str, Callable[[LoggedRequest, bytes, Schema], Decoded | None]] = {
    "json": _decode_json,
    "kserve": decode_http,
    "kserve_grpc": decode_grpc,
    "paddle": decode_paddle,
    "brpc": decode_brpc,
}
