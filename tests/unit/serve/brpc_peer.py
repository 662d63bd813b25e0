"""A bRPC client: frames of baidu_std with messages of CTRPredictionService and GeneralModelService, made with Google's
protobuf from proto/. It shares no code with the native server."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

from elasticctr.serve import protobuf

CTR = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService"
GENERAL = "baidu.paddle_serving.predictor.general_model.GeneralModelService"

_PACKAGES = {"rpc": "brpc.policy", "ctr": CTR.rpartition(".")[0], "general": GENERAL.rpartition(".")[0]}


def message(name: str) -> Any:
    package, _, kind = name.partition(".")
    return protobuf.make(f"{_PACKAGES[package]}.{kind}")


@dataclass(frozen=True)
class BrpcReply:
    call_id: int
    error_code: int
    error_text: str
    user_fields: dict[str, str]
    body: bytes

    def parse(self, name: str) -> Any:
        assert self.error_code == 0, self.error_text
        made = message(name)
        made.ParseFromString(self.body)
        return made


class BrpcPeer:
    """One connection."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._next_id = 100

    def __enter__(self) -> BrpcPeer:
        return self

    def __exit__(self, *args: object) -> None:
        self._socket.close()

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, service: str, body: bytes, method: str = "inference", token: str = "", **meta: Any) -> int:
        self._next_id += 1
        self.send_raw(frame(service, body, self._next_id, method, token, **meta))
        return self._next_id

    def receive(self) -> BrpcReply | None:
        """None: the server ended the connection."""
        head = self._read(12)
        if head is None:
            return None
        magic, size, meta_size = struct.unpack(">4sII", head)
        assert magic == b"PRPC" and meta_size <= size
        data = self._read(size)
        assert data is not None
        meta = message("rpc.RpcMeta")
        meta.ParseFromString(data[:meta_size])
        fields = {field.key: field.value for field in meta.user_fields}
        response = meta.response
        return BrpcReply(meta.correlation_id, response.error_code, response.error_text, fields, data[meta_size:])

    def call(self, service: str, body: bytes, **options: Any) -> BrpcReply:
        call_id = self.send(service, body, **options)
        reply = self.receive()
        assert reply is not None and reply.call_id == call_id
        return reply

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data


def frame(service: str, body: bytes, call_id: int, method: str = "inference", token: str = "", **more: Any) -> bytes:
    meta = message("rpc.RpcMeta")
    meta.request.service_name = service
    meta.request.method_name = method
    meta.correlation_id = call_id
    if token:
        meta.authentication_data = token.encode()
    for key, value in more.items():
        if key in ("log_id", "request_id", "timeout_ms"):
            setattr(meta.request, key, value)
        elif key == "user_fields":
            for name, text in value.items():
                meta.user_fields.add(key=name, value=text)
        else:
            setattr(meta, key, value)
    head = meta.SerializeToString()
    return struct.pack(">4sII", b"PRPC", len(head) + len(body), len(head)) + head + body


def ctr_request(instances: list[tuple[list[int], list[float]]]) -> bytes:
    request = message("ctr.Request")
    for ids, floats in instances:
        request.instances.add(sparse_ids=[protobuf.to_signed(v) for v in ids], dense_ids=floats)
    return bytes(request.SerializeToString())
