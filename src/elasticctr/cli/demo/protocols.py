"""The same sample asked over every protocol of the prediction server, by hand: what goes over the wire is in sight.

Plain JSON and KServe are a POST; gRPC needs grpcio and is left out without it; bRPC is a frame of baidu_std with the
CTR service's message in it, as clients of Paddle Serving send it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from elasticctr.data.batch import Batch
from elasticctr.errors import DataError
from elasticctr.net.client import Peer

CTR_SERVICE = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService"
_TIMEOUT_S = 10.0


def ask_all(url: str, grpc: str | None, model: str, line: str, batch: Batch) -> dict[str, float]:
    """The score of a batch of one sample, which stands in the log as `line`, by protocol."""
    asks: dict[str, Callable[[], float]] = {
        "JSON": lambda: ask_json(url, model, line),
        "KServe HTTP": lambda: ask_kserve(url, model, batch),
        "bRPC": lambda: ask_brpc(url, model, batch),
    }
    if grpc is not None:
        asks["KServe gRPC"] = lambda: ask_grpc(grpc, model, batch)
    return {name: ask() for name, ask in asks.items()}


def ask_json(url: str, model: str, line: str) -> float:
    with Peer(url, timeout_s=_TIMEOUT_S) as peer:
        return float(peer.post(f"/v1/models/{model}:predict", {"lines": [line]})["scores"][0])


def ask_kserve(url: str, model: str, batch: Batch) -> float:
    inputs: list[dict[str, Any]] = [
        {"name": name, "datatype": kind, "shape": [1, len(values)], "data": values}
        for name, kind, values in _tensors(batch)
    ]
    with Peer(url, timeout_s=_TIMEOUT_S) as peer:
        return float(peer.post(f"/v2/models/{model}/infer", {"inputs": inputs})["outputs"][0]["data"][0])


def ask_grpc(address: str, model: str, batch: Batch) -> float:
    """KServe's ModelInfer, its two messages put together here: grpcio carries them."""
    import grpc

    message = _text(1, model.encode())
    for name, kind, values in _tensors(batch):
        contents = b"".join(_key(5, 0) + _varint(v) for v in values) if kind == "UINT64" else b""
        contents += b"".join(_key(6, 5) + struct.pack("<f", v) for v in values) if kind == "FP32" else b""
        shape = b"".join(_key(3, 0) + _varint(n) for n in (1, len(values)))
        message += _text(5, _text(1, name.encode()) + _text(2, kind.encode()) + shape + _text(5, contents))
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer: bytes = infer(message, timeout=_TIMEOUT_S)
    fields = _fields(answer)
    if 6 in fields:  # raw_output_contents
        return float(struct.unpack("<f", fields[6][0][:4])[0])
    outputs = _fields(_fields(fields[5][0])[5][0])
    return float(struct.unpack("<f", outputs[6][0][:4])[0])


def ask_brpc(url: str, model: str, batch: Batch) -> float:
    """CTRPredictionService.inference: one id per sparse slot, then the dense floats."""
    ids = [int(value) for number in range(len(batch.schema.sparse)) for value in batch.slot(number)[0][:1]]
    floats = batch.dense[0].tolist()
    instance = b"".join(_key(1, 0) + _varint(v) for v in ids)
    instance += b"".join(_key(2, 5) + struct.pack("<f", v) for v in floats)
    message = _text(1, instance)
    meta = _text(1, _text(1, CTR_SERVICE.encode()) + _text(2, b"inference")) + _key(4, 0) + _varint(7)
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), _TIMEOUT_S) as connection:
        connection.sendall(b"PRPC" + struct.pack(">II", len(meta) + len(message), len(meta)) + meta + message)
        magic, body_bytes, meta_bytes = struct.unpack(">4sII", _receive(connection, 12))
        body = _receive(connection, body_bytes) if magic == b"PRPC" else b""
    error_code = _fields(_fields(body[:meta_bytes]).get(2, [b""])[0]).get(1, [b"\0"])[0]
    if not body or error_code != b"\0":
        raise DataError(f"bRPC answered an error: {body[:200]!r}")
    prediction = _fields(_fields(body[meta_bytes:])[1][0])
    return float(struct.unpack("<f", prediction[2][0])[0])


def _tensors(batch: Batch) -> list[tuple[str, str, list[Any]]]:
    """The one sample of a batch, slot by slot."""
    sparse = [(slot.name, "UINT64", batch.slot(number)[0].tolist()) for number, slot in enumerate(batch.schema.sparse)]
    dense, start = [], 0
    for slot in batch.schema.dense:
        dense.append((slot.name, "FP32", batch.dense[0, start : start + slot.dim].tolist()))
        start += slot.dim
    return [*sparse, *dense]


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _text(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a protobuf message; numbers as their bytes."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        start = at
        if key & 7 == 0:
            varint()
        else:
            length = {1: 8, 2: -1, 5: 4}[key & 7]
            length = varint() if length < 0 else length
            start = at
            at += length
        found.setdefault(key >> 3, []).append(message[start:at])
    return found


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise DataError("the server closed the connection")
        data += part
    return data
