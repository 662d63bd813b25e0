"""Logged requests → the values they gave, by slot and sample, before anything is hashed or transformed.

A second reading of the protocols, in plain Python and apart from the server's: what both make of a request is what
`verify --requests` compares. Protocols without a reader here (gRPC, bRPC) and requests whose text was not kept decode
to nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elasticctr.data.schema import Format, Schema, SparseSlot
from elasticctr.errors import DataError
from elasticctr.serve.feedback.log import LoggedRequest

_STRINGS = (Format.CRITEO, Format.CSV, Format.PARQUET)  # whose values are texts unless a slot says id


@dataclass(slots=True)
class Decoded:
    """Values as texts and numbers. What is `final` holds feasigns and dense floats after transforms."""

    count: int
    sparse: dict[str, list[list[str]]] = field(default_factory=dict)  # per sample
    dense: dict[str, list[list[float] | None]] = field(default_factory=dict)
    final: set[str] = field(default_factory=set)  # slots
    lines: list[str] | None = None  # instead of all the above
    format: str | None = None  # of the lines; None: the schema's


def decode(request: LoggedRequest, schema: Schema) -> Decoded | None:
    """None: there is nothing to decode it from. Raises DataError where a request that was answered makes no sense."""
    reader = _READERS.get(request.protocol)
    if reader is None or request.body is None:
        return None
    try:
        return reader(request, request.body, schema)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
        raise DataError(f"request {request.id!r}: cannot be read again: {type(e).__name__}: {e}") from None


def is_hashed(schema: Schema, name: str) -> bool:
    """Whether texts of a sparse slot are hashed: by its own word, or as its format has them."""
    slot = next(slot for slot in schema.sparse if slot.name == name)
    return slot.values == "string" or (slot.values == "auto" and schema.format in _STRINGS)


# Plain JSON


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
        decoded.final = {slot.name for slot in schema.slots}
    return decoded


def _pick(name: str, sample: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """A sample's own value, if it gives one: null gives none, an empty list does."""
    own = sample.get(name)
    return shared.get(name) if own is None else own


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _floats(value: Any) -> list[float] | None:
    return None if value is None else [float(v) for v in _listed(value)]


def _is_typed(slot: SparseSlot, schema: Schema) -> bool:
    """In Parquet the type of a value says whether it is a feasign already."""
    return schema.format is Format.PARQUET and slot.values == "auto"


# KServe V2 over HTTP

_TYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
_LENGTHS = ".lengths"


def _decode_kserve(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded:
    head = body[: request.binary_header] if request.binary_header else body
    rest = memoryview(body)[len(head) :]
    entry = json.loads(head)
    parameters = entry.get("parameters", {})
    tensors: dict[str, tuple[list[int], list[Any], str]] = {}
    for given in entry["inputs"]:
        size = given.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = list(_flatten(given["data"]))
        else:
            data, rest = _binary(bytes(rest[:size]), given["datatype"]), rest[size:]
        tensors[given["name"]] = [int(n) for n in given["shape"]], data, given["datatype"]
    names = {slot.name for slot in schema.slots}
    if set(tensors) == {"lines"} and "lines" not in names:
        lines = [(v.decode() if isinstance(v, bytes) else str(v)).removesuffix("\n") for v in tensors["lines"][1]]
        return Decoded(len(lines), lines=lines, format=parameters.get("format"))
    return _bind_tensors(tensors, parameters.get("values"), schema)


def _bind_tensors(tensors: dict[str, tuple[list[int], list[Any], str]], values: str | None, schema: Schema) -> Decoded:
    decoded = Decoded(1)
    is_final = values == "feasigns"
    for name, (shape, data, kind) in tensors.items():
        slots = [slot.name for slot in schema.slots if slot.name == name]
        dense_names = {slot.name: slot.dim for slot in schema.dense}
        if not slots and name.endswith(_LENGTHS):
            continue
        is_packed = not slots
        slots = slots or ([s.name for s in schema.sparse] if name == "feasigns" else list(dense_names))
        if slots[0] in dense_names:
            rows = _rows(shape, [float(v) for v in data])
            for i, slot in enumerate(slots):
                first = sum(dense_names[before] for before in slots[:i])
                cells = [row[first : first + dense_names[slot]] for row in rows]
                decoded.dense[slot] = [None if any(map(math.isnan, cell)) else cell for cell in cells]
            if is_final or (is_packed and values is None):
                decoded.final |= set(slots)
            continue
        texts = [v.decode() if isinstance(v, bytes) else str(_feasign(v) if is_packed or is_final else v) for v in data]
        lengths = tensors.get(name + _LENGTHS)
        bags = _rows(shape, texts) if lengths is None else _cut(texts, [int(n) for n in lengths[1]])
        if is_packed and lengths is None:
            bags = [[text] for row in bags for text in row]
        for i, slot in enumerate(slots):
            decoded.sparse[slot] = [[v for v in bag if v != ""] for bag in bags[i :: len(slots)]]
            if is_packed or is_final or (kind != "BYTES" and not is_hashed(schema, slot)):
                decoded.final.add(slot)
                decoded.sparse[slot] = [[str(_feasign(int(v))) for v in bag] for bag in decoded.sparse[slot]]
    sizes = [*map(len, decoded.sparse.values()), *map(len, decoded.dense.values())]
    decoded.count = max(sizes, default=1)
    return decoded


def _binary(data: bytes, kind: str) -> list[Any]:
    if kind != "BYTES":
        return list(np.frombuffer(data, _TYPES[kind]).tolist())
    texts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        texts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return texts


# Paddle Serving over HTTP

_DENSE = ("dense_input", "dense_feature", "dense_features", "dense")
_FORMS = ((re.compile(r"C(\d+)"), 1), (re.compile(r"(\d+)"), 1), (re.compile(r"embedding_(\d+)\.tmp_0"), 0),
          (re.compile(r"sparse_(\d+)"), 0))  # fmt: skip


def _decode_paddle(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded | None:
    entry = json.loads(body)
    feeds: dict[str, Any] = {}
    if "feed" in entry:
        given = entry["feed"] if isinstance(entry["feed"], list) else [entry["feed"]]
        if len(given) != 1:
            return None
        feeds = given[0]
    elif "key" in entry:
        feeds = {key: json.loads(value) for key, value in zip(entry["key"], entry["value"], strict=True)}
    else:
        return None  # typed tensors: their values are feasigns already
    decoded = Decoded(1)
    for name, value in feeds.items():
        slots = _paddle_slots(name, schema)
        if slots is None or f"{name}.lod" in feeds:
            return None
        rows = value if value and isinstance(value[0], list) else [value]
        for slot, first, dim in slots:
            decoded.final.add(slot)
            if dim:
                decoded.dense[slot] = [[float(v) for v in row[first : first + dim]] for row in rows]
            else:
                if any(isinstance(v, str) for row in rows for v in row):
                    return None
                decoded.sparse[slot] = [[str(_feasign(v)) for v in row] for row in rows]
        decoded.count = len(rows)
    return decoded


def _paddle_slots(name: str, schema: Schema) -> list[tuple[str, int, int]] | None:
    """(slot, first value, dim or 0 for a sparse one) that a name feeds; None: cannot tell."""
    dense = {slot.name: slot.dim for slot in schema.dense}
    if name in dense:
        return [(name, 0, dense[name])]
    if any(slot.name == name for slot in schema.sparse):
        return [(name, 0, 0)]
    if name == "label" or name in schema.label:
        return []
    if name in _DENSE and dense:
        firsts = np.cumsum([0, *dense.values()]).tolist()
        return [(slot, first, dim) for (slot, dim), first in zip(dense.items(), firsts, strict=False)]
    for form, base in _FORMS:
        match = form.fullmatch(name)
        if match and not any(form.fullmatch(slot.name) for slot in schema.sparse):
            return [(schema.sparse[int(match[1]) - base].name, 0, 0)]
    return None


def _feasign(value: Any) -> int:
    """All 64 bits of a whole number, which clients without unsigned ones send below 0."""
    return int(value) & ((1 << 64) - 1)


def _rows(shape: Sequence[int], data: list[Any]) -> list[list[Any]]:
    width = math.prod(shape[1:])
    return [data[i * width : (i + 1) * width] for i in range(shape[0])]


def _cut(data: list[Any], lengths: Sequence[int]) -> list[list[Any]]:
    ends = np.cumsum([0, *lengths]).tolist()
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def _flatten(data: Any) -> Iterable[Any]:
    for item in data:
        if isinstance(item, list):
            yield from _flatten(item)
        else:
            yield item


_READERS: dict[str, Callable[[LoggedRequest, bytes, Schema], Decoded | None]] = {
    "json": _decode_json,
    "kserve": _decode_kserve,
    "paddle": _decode_paddle,
}
