"""The bytes of every protocol our ports speak, for honest and hostile clients.

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
from elasticctr.serve import protobuf

WIRE_HEADER = struct.Struct("<4sIQQQIBBH")
WIRE_MAGIC = bytes((0xEC, 0x57, 0x43, 0x01))
HELLO, PING, LOOKUP = 1, 2, 3
GENERAL = "baidu.paddle_serving.predictor.general_model"


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


# gRPC and bRPC


def infer_message(model: str, samples: Samples) -> bytes:
    message = protobuf.make("inference.ModelInferRequest", model_name=model)
    message.parameters["values"].string_param = "feasigns"

    def add(name: str, kind: str, array: Any) -> None:
        message.inputs.add(name=name, datatype=kind, shape=array.shape)
        message.raw_input_contents.append(array.tobytes())

    for name, bags in samples.sparse.items():
        add(name, "UINT64", np.array([v for bag in bags for v in bag], "<u8"))
        add(f"{name}.lengths", "INT32", np.array([len(bag) for bag in bags], "<i4"))
    for name, rows in samples.dense.items():
        add(name, "FP32", np.array(rows, "<f4"))
    return bytes(message.SerializeToString())


def infer_answer(body: bytes) -> tuple[int, Any]:
    """Version and scores of a ModelInferResponse."""
    answer = protobuf.parse("inference.ModelInferResponse", body)
    return int(answer.model_version), np.frombuffer(answer.raw_output_contents[0], "<f4")


def brpc_call(model: str, samples: Samples, number: int = 1, token: str = "") -> bytes:
    request = protobuf.make(f"{GENERAL}.Request", fetch_var_names=["score"])
    for name, bags in samples.sparse.items():
        values = [protobuf.to_signed(v) for bag in bags for v in bag]
        lod = list(accumulate(map(len, bags), initial=0))
        request.tensor.add(name=name, int64_data=values, shape=(len(values), 1), lod=lod)
    if samples.dense:
        floats = np.concatenate([np.array(rows, "<f4") for rows in samples.dense.values()], axis=1)
        request.tensor.add(name="dense_input", elem_type=1, float_data=floats.ravel().tolist(), shape=floats.shape)
    meta = protobuf.make("brpc.policy.RpcMeta", correlation_id=number)
    meta.request.service_name, meta.request.method_name = f"{GENERAL}.GeneralModelService", "inference"
    if token:
        meta.authentication_data = token.encode()
    meta.user_fields.add(key="model", value=model)
    head, body = meta.SerializeToString(), request.SerializeToString()
    return b"PRPC" + struct.pack(">II", len(head) + len(body), len(head)) + head + body


def read_brpc(connection: socket.socket) -> Any:
    """The scores of an answer."""
    magic, body_bytes, meta_bytes = struct.unpack(">4sII", receive(connection, 12))
    if magic != b"PRPC":
        raise ConnectionResetError(f"answers {magic!r}")
    body = receive(connection, body_bytes)
    response = protobuf.parse("brpc.policy.RpcMeta", body[:meta_bytes]).response
    if response.error_code:
        raise Refused(response.error_text)
    answer = protobuf.parse(f"{GENERAL}.Response", body[meta_bytes:])
    return np.array(answer.outputs[0].tensor[0].float_data, np.float32)


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
