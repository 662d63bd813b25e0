"""Paddle Serving requests over HTTP and bRPC, decoded again. Whole numbers are feasigns, texts are hashed if the schema
says so, dense values are already transformed. Typed tensors in JSON are not decoded; their feasigns are in the log."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from elasticctr.data.schema import Schema
from elasticctr.serve import protobuf
from elasticctr.serve.feedback.decoded import Decoded, as_feasign
from elasticctr.serve.feedback.log import LoggedRequest

_DENSE = ("dense_input", "dense_feature", "dense_features", "dense")
_GENERAL = "baidu.paddle_serving.predictor.general_model"
_READ = {"int64_data", "float_data", "elem_type", "shape", "lod", "name", "alias_name"}
_FORMS = ((re.compile(r"C(\d+)"), 1), (re.compile(r"(\d+)"), 1), (re.compile(r"embedding_(\d+)\.tmp_0"), 0),
          (re.compile(r"sparse_(\d+)"), 0))  # fmt: skip


def decode_paddle(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded | None:
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
    if any(f"{name}.lod" in feeds for name in feeds):
        return None
    return _bind({name: v if v and isinstance(v[0], list) else [v] for name, v in feeds.items()}, schema)


def decode_brpc(request: LoggedRequest, body: bytes, schema: Schema) -> Decoded | None:
    meta = protobuf.parse("brpc.policy.RpcMeta", body[: request.binary_header])
    if not meta.request.service_name.endswith(".GeneralModelService"):
        return None
    feeds = {}
    message = protobuf.parse(f"{_GENERAL}.Request", body[request.binary_header :])
    for tensor in message.tensor:
        if not {field.name for field, _ in tensor.ListFields()} <= _READ or not tensor.HasField("name"):
            return None
        values: list[Any] = list(tensor.float_data or tensor.int64_data)
        ends = list(tensor.lod) or _ends(tensor.shape, values)
        feeds[tensor.name] = [values[start:end] for start, end in itertools.pairwise(ends)]
    return _bind(feeds, schema)


def _ends(shape: Sequence[int], values: list[Any]) -> list[int]:
    return [len(values) // max(shape[0], 1) * i for i in range(shape[0] + 1)]


def _bind(feeds: dict[str, list[list[Any]]], schema: Schema) -> Decoded | None:
    decoded = Decoded(1)
    for name, rows in feeds.items():
        slots = _paddle_slots(name, schema)
        if slots is None:
            return None
        for slot, first, dim in slots:
            if dim:
                decoded.final.add(slot)
                decoded.dense[slot] = [[float(v) for v in row[first : first + dim]] for row in rows]
            elif any(isinstance(v, str) for row in rows for v in row):
                decoded.sparse[slot] = [[str(v) for v in row if v != ""] for row in rows]
            else:
                decoded.final.add(slot)
                decoded.sparse[slot] = [[str(as_feasign(v)) for v in row] for row in rows]
        decoded.count = len(rows)
    return decoded


def _paddle_slots(name: str, schema: Schema) -> list[tuple[str, int, int]] | None:
    """(slot, first value, dim or 0 for a sparse one) that a name feeds; None if unknown."""
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
