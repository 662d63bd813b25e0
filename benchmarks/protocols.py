"""The bytes of every protocol of our ports, written from the specifications, for honest and hostile clients.

Samples are feasigns per slot and dense floats. Answers are parsed only as far as needed to recognise them.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from elasticctr.data.batch import Batch

WIRE_HEADER = struct.Struct("<4sIQQQIBBH")
WIRE_MAGIC = bytes((0xEC, 0x57, 0x43, 0x01))
HELLO, PING, LOOKUP = 1, 2, 3
GENERAL = b"baidu.paddle_serving.predictor.general_model.GeneralModelService"


class Refused(Exception):
    """An answer that is a refusal or an error."""


@dataclass(frozen=True)
class Samples:
    """Some samples of a log."""

    sparse: Mapping[str, Sequence[Sequence[int]]]  # per slot, per sample, feasigns
    dense: Mapping[str, Sequence[Sequence[float]]]  # after their transforms

    def __len__(self) -> int:
        return len(next(iter(self.sparse.values())))

    def json(self) -> list[dict[str, Any]]:
        return [
            {name: [str(v) for v in bags[i]] for name, bags in self.sparse.items()}
            | {name: list(rows[i]) for name, rows in self.dense.items()}
            for i in range(len(self))
        ]


def samples_of(batch: Batch, start: int, count: int) -> Samples:
    sparse, dense, column = {}, {}, 0
    for number, slot in enumerate(batch.schema.sparse):
        values, offsets = batch.slot(number)
        sparse[slot.name] = [values[offsets[i] : offsets[i + 1]].tolist() for i in range(start, start + count)]
    for floats in batch.schema.dense:
        rows = batch.dense[start : start + count, column : column + floats.dim]
        dense[floats.name] = rows.astype(np.float64).tolist()
        column += floats.dim
    return Samples(sparse, dense)


def receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError("closed the connection")
        data += part
    return bytes(data)


# HTTP


def http_request(method: str, path: str, body: bytes = b"", token: str = "", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_http(connection: socket.socket) -> tuple[int, bytes]:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError("closed the connection")
        data += part
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
    return int(head.split(b" ", 2)[1]), body + receive(connection, length - len(body))


def predict_json(samples: Samples) -> bytes:
    return json.dumps({"samples": samples.json(), "values": "feasigns"}).encode()


# Protocol buffers, for gRPC and bRPC


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fields_of(data: bytes) -> dict[int, Any]:
    """The fields of a message; if one is repeated, the last."""
    found: dict[int, Any] = {}
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = take()
        if key & 7 == 0:
            found[key >> 3] = take()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or take()
        found[key >> 3] = data[at : at + size]
        at += size
    return found


def infer_message(model: str, samples: Samples) -> bytes:
    """ModelInferRequest of KServe: model_name 1, parameters 4, inputs 5, raw_input_contents 7."""
    values = field(1, b"values") + field(2, field(3, b"feasigns"))
    message, raw = field(1, model.encode()) + field(4, values), b""

    def add(name: str, kind: bytes, array: Any) -> bytes:
        nonlocal message
        shape = b"".join(varint(n) for n in array.shape)
        message += field(5, field(1, name.encode()) + field(2, kind) + field(3, shape))
        return field(7, array.tobytes())

    for name, bags in samples.sparse.items():
        raw += add(name, b"UINT64", np.array([v for bag in bags for v in bag], "<u8"))
        raw += add(f"{name}.lengths", b"INT32", np.array([len(bag) for bag in bags], "<i4"))
    for name, rows in samples.dense.items():
        raw += add(name, b"FP32", np.array(rows, "<f4"))
    return message + raw


def infer_answer(body: bytes) -> tuple[int, Any]:
    """Version and scores of a ModelInferResponse: model_version 2, raw_output_contents 6."""
    fields = fields_of(body)
    return int(fields[2]), np.frombuffer(fields[6], "<f4")


def brpc_call(model: str, samples: Samples, number: int = 1, token: str = "") -> bytes:
    message = b""
    for name, bags in samples.sparse.items():
        values = [v for bag in bags for v in bag]
        lod = b"".join(map(varint, accumulate(map(len, bags), initial=0)))
        tensor = field(1, b"".join(map(varint, values))) + field(12, lod) + field(13, name.encode())
        message += field(1, tensor + field(11, varint(len(values)) + varint(1)))
    if samples.dense:
        floats = np.concatenate([np.array(rows, "<f4") for rows in samples.dense.values()], axis=1)
        shape = varint(len(floats)) + varint(floats.shape[1])
        dense = field(2, floats.tobytes()) + field(11, shape) + field(13, b"dense_input")
        message += field(1, varint_field(10, 1) + dense)
    message += field(2, b"score")
    meta = field(1, field(1, GENERAL) + field(2, b"inference")) + varint_field(4, number)
    meta += field(7, token.encode()) if token else b""
    meta += field(9, field(1, b"model") + field(2, model.encode()))
    return b"PRPC" + struct.pack(">II", len(meta) + len(message), len(meta)) + meta + message


def read_brpc(connection: socket.socket) -> Any:
    """The scores of an answer."""
    magic, body_bytes, meta_bytes = struct.unpack(">4sII", receive(connection, 12))
    if magic != b"PRPC":
        raise ConnectionResetError(f"answers {magic!r}")
    body = receive(connection, body_bytes)
    response = fields_of(fields_of(body[:meta_bytes]).get(2, b""))
    if response.get(1, 0):
        raise Refused(response.get(2, b"").decode(errors="replace"))
    output = fields_of(fields_of(body[meta_bytes:])[1])
    return np.frombuffer(fields_of(output[1])[2], "<f4")


# Redis and our own frames


def redis_command(*parts: bytes | str) -> bytes:
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded)


def read_redis(file: Any) -> Any:
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise Refused(rest.decode(errors="replace"))
    if kind == b"$":
        return None if rest == b"-1" else file.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read_redis(file) for _ in range(int(rest))]
    return rest


def wire_frame(opcode: int, body: bytes = b"", table: int = 0, announced: int | None = None) -> bytes:
    """`announced` is the body length in the header, if it is to be wrong."""
    length = len(body) if announced is None else announced
    return WIRE_HEADER.pack(WIRE_MAGIC, length, 1, 0, table, 0, opcode, 0, 0) + body


def read_wire(connection: socket.socket) -> bytes:
    magic, size, _, _, _, _, _, status, _ = WIRE_HEADER.unpack(receive(connection, WIRE_HEADER.size))
    if magic != WIRE_MAGIC:
        raise ConnectionResetError(f"answers {magic!r}")
    body = receive(connection, size)
    if status:
        raise Refused(body.decode(errors="replace"))
    return body
