"""Decodes KServe V2 requests again: HTTP (JSON, binary tensors) and gRPC. docs/reference/kserve.md defines them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from elasticctr.data.schema import Schema
from elasticctr.serve import protobuf
from elasticctr.serve.feedback.decoded import Decoded, as_feasign, is_hashed
from elasticctr.serve.feedback.log import LoggedRequest

Tensors = dict[str, tuple[list[int], list[Any], str]]  # shape, values, datatype
_TYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
_LENGTHS = ".lengths"


def decode_http(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded:
    head = body[: request.binary_header] if request.binary_header else body
    rest = memoryview(body)[len(head) :]
    entry = json.loads(head)
    parameters = entry.get("parameters", {})
    tensors: Tensors = {}
    for given in entry["inputs"]:
        size = given.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = list(_flatten(given["data"]))
        else:
            data, rest = _binary(bytes(rest[:size]), given["datatype"]), rest[size:]
        tensors[given["name"]] = [int(n) for n in given["shape"]], data, given["datatype"]
    return _make(tensors, parameters.get("values"), parameters.get("format"), schema)


def _make(tensors: Tensors, values: str | None, format: str | None, schema: Schema) -> Decoded:
    names = {slot.name for slot in schema.logged}
    if set(tensors) == {"lines"} and "lines" not in names:
        lines = [(v.decode() if isinstance(v, bytes) else str(v)).removesuffix("\n") for v in tensors["lines"][1]]
        return Decoded(len(lines), lines=lines, format=format)
    return _bind_tensors(tensors, values, schema)


def _bind_tensors(tensors: Tensors, values: str | None, schema: Schema) -> Decoded:
    decoded = Decoded(1)
    is_final = values == "feasigns"
    for name, (shape, data, kind) in tensors.items():
        slots = [slot.name for slot in schema.logged if slot.name == name]
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
        texts = [
            v.decode() if isinstance(v, bytes) else str(as_feasign(v) if is_packed or is_final else v) for v in data
        ]
        lengths = tensors.get(name + _LENGTHS)
        bags = _rows(shape, texts) if lengths is None else _cut(texts, [int(n) for n in lengths[1]])
        if is_packed and lengths is None:
            bags = [[text] for row in bags for text in row]
        for i, slot in enumerate(slots):
            decoded.sparse[slot] = [[v for v in bag if v != ""] for bag in bags[i :: len(slots)]]
            if is_packed or is_final or (kind != "BYTES" and not is_hashed(schema, slot)):
                decoded.final.add(slot)
                decoded.sparse[slot] = [[str(as_feasign(int(v))) for v in bag] for bag in decoded.sparse[slot]]
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


_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def decode_grpc(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded | None:
    message = protobuf.parse("inference.ModelInferRequest", body)
    raw = message.raw_input_contents
    tensors: Tensors = {}
    for i, given in enumerate(message.inputs):
        data = _binary(raw[i], given.datatype) if raw else _typed(given.contents, given.datatype)
        if data is None:
            return None
        tensors[given.name] = list(given.shape), data, given.datatype
    texts = {name: parameter.string_param for name, parameter in message.parameters.items()}
    return _make(tensors, texts.get("values") or None, texts.get("format") or None, schema)


def _typed(contents: Any, kind: str) -> list[Any] | None:
    """Values in the field of their type; None: one that is not read here."""
    given = contents.ListFields()
    if any(field.name != _CONTENTS.get(kind) for field, _ in given):
        return None
    return [value for _, values in given for value in values]


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
