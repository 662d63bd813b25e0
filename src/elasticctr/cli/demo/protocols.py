"""The same sample asked over every protocol of the prediction server, without its client: what goes over the wire is in
sight.

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
from elasticctr.serve import protobuf

CTR = "baidu.paddle_serving.predictor.ctr_prediction"
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
    """KServe's ModelInfer."""
    import grpc

    message = protobuf.make("inference.ModelInferRequest", model_name=model)
    for name, kind, values in _tensors(batch):
        tensor = message.inputs.add(name=name, datatype=kind, shape=(1, len(values)))
        contents = tensor.contents.uint64_contents if kind == "UINT64" else tensor.contents.fp32_contents
        contents.extend(values)
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = protobuf.parse("inference.ModelInferResponse", infer(message.SerializeToString(), timeout=_TIMEOUT_S))
    if answer.raw_output_contents:
        return float(struct.unpack("<f", answer.raw_output_contents[0][:4])[0])
    return float(answer.outputs[0].contents.fp32_contents[0])


def ask_brpc(url: str, model: str, batch: Batch) -> float:
    """CTRPredictionService.inference: one id per sparse slot, then the dense floats."""
    ids = [int(value) for number in range(len(batch.schema.sparse)) for value in batch.slot(number)[0][:1]]
    request = protobuf.make(f"{CTR}.Request")
    request.instances.add(sparse_ids=map(protobuf.to_signed, ids), dense_ids=batch.dense[0].tolist())
    meta = protobuf.make("brpc.policy.RpcMeta", correlation_id=7)
    meta.request.service_name, meta.request.method_name = f"{CTR}.CTRPredictionService", "inference"
    head, body = meta.SerializeToString(), request.SerializeToString()
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), _TIMEOUT_S) as connection:
        connection.sendall(b"PRPC" + struct.pack(">II", len(head) + len(body), len(head)) + head + body)
        magic, body_bytes, meta_bytes = struct.unpack(">4sII", _receive(connection, 12))
        answer = _receive(connection, body_bytes) if magic == b"PRPC" else b""
    refusal = protobuf.parse("brpc.policy.RpcMeta", answer[:meta_bytes]).response
    if not answer or refusal.error_code:
        raise DataError(f"bRPC answered an error: {refusal.error_text or answer[:200]!r}")
    return float(protobuf.parse(f"{CTR}.Response", answer[meta_bytes:]).predictions[0].prob1)


def _tensors(batch: Batch) -> list[tuple[str, str, list[Any]]]:
    """The one sample of a batch, slot by slot."""
    sparse = [(slot.name, "UINT64", batch.slot(number)[0].tolist()) for number, slot in enumerate(batch.schema.sparse)]
    dense, start = [], 0
    for slot in batch.schema.dense:
        dense.append((slot.name, "FP32", batch.dense[0, start : start + slot.dim].tolist()))
        start += slot.dim
    return [*sparse, *dense]


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise DataError("the server closed the connection")
        data += part
    return data
