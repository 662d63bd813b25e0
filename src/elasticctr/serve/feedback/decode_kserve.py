"""KServe V2 requests over HTTP (JSON, binary tensors) and gRPC, read again. docs/reference/kserve.md explains them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from elasticctr.data.schema import Schema
from elasticctr.serve.feedback.decoded import Decoded, as_feasign, fields_of, is_hashed, varints_of
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


# ModelInferRequest: parameters 4, inputs 5 (name 1, datatype 2, shape 3, contents 5), raw_input_contents 7.
_CONTENTS = {
    "BOOL": 1,
    "INT8": 2,
    "INT16": 2,
    "INT32": 2,
    "INT64": 3,
    "UINT8": 4,
    "UINT16": 4,
    "UINT32": 4,
    "UINT64": 5,
}


def decode_grpc(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded | None:
    heads, raw, parameters = [], [], {}
    for number, value in fields_of(body):
        if number == 5:
            heads.append(_grpc_head(_bytes(value)))
        elif number == 7:
            raw.append(_bytes(value))
        elif number == 4:
            entry = dict(fields_of(_bytes(value)))
            parameters[_bytes(entry[1]).decode()] = dict(fields_of(_bytes(entry.get(2, b"")))).get(3, b"")
    tensors: Tensors = {}
    for i, (name, kind, shape, contents) in enumerate(heads):
        data = _binary(raw[i], kind) if raw else _typed(contents, kind)
        if data is None:
            return None
        tensors[name] = shape, data, kind
    texts = {name: value.decode() for name, value in parameters.items() if isinstance(value, bytes)}
    return _make(tensors, texts.get("values"), texts.get("format"), schema)


def _grpc_head(tensor: bytes) -> tuple[str, str, list[int], bytes]:
    name = kind = ""
    shape: list[int] = []
    contents = b""
    for number, value in fields_of(tensor):
        if number == 1:
            name = _bytes(value).decode()
        elif number == 2:
            kind = _bytes(value).decode()
        elif number == 3:
            shape += varints_of(value) if isinstance(value, bytes) else [value]
        elif number == 5:
            contents = _bytes(value)
    return name, kind, shape, contents


def _typed(contents: bytes, kind: str) -> list[Any] | None:
    """Values in the field of their type; None: one that is not read here."""
    values: list[Any] = []
    for number, value in fields_of(contents):
        if kind == "BYTES" and number == 8:
            values.append(value)
        elif kind in ("FP32", "FP64") and isinstance(value, bytes):
            values += np.frombuffer(value, "<f4" if number == 6 else "<f8").tolist()
        elif number == _CONTENTS.get(kind):
            values += varints_of(value) if isinstance(value, bytes) else [value]
        else:
            return None
    return values


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message is expected")
    return value


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
