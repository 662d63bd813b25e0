"""An independent bRPC client: frames and messages made with Google's protobuf from the public descriptions of
baidu_std, CTRPredictionService and GeneralModelService. It shares no code with the server."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CTR = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService"
GENERAL = "baidu.paddle_serving.predictor.general_model.GeneralModelService"

_MESSAGES: dict[str, list[str]] = {
    "rpc.RequestMeta": [
        "required string service_name = 1", "required string method_name = 2", "optional int64 log_id = 3",
        "optional string request_id = 7", "optional int32 timeout_ms = 8",
    ],
    "rpc.ResponseMeta": ["optional int32 error_code = 1", "optional string error_text = 2"],
    "rpc.UserField": ["optional string key = 1", "optional string value = 2"],
    "rpc.Meta": [
        "optional rpc.RequestMeta request = 1", "optional rpc.ResponseMeta response = 2",
        "optional int32 compress_type = 3", "optional int64 correlation_id = 4", "optional int32 attachment_size = 5",
        "optional bytes authentication_data = 7", "repeated rpc.UserField user_fields = 9",
    ],
    "ctr.Instance": ["repeated int64 sparse_ids = 1", "repeated float dense_ids = 2"],
    "ctr.Request": ["repeated ctr.Instance instances = 1"],
    "ctr.Prediction": ["required float prob0 = 1", "required float prob1 = 2"],
    "ctr.Response": [
        "repeated ctr.Prediction predictions = 1", "required int64 err_code = 2", "optional string err_msg = 3",
    ],
    "general.Tensor": [
        "packed int64 int64_data = 1", "packed float float_data = 2", "packed int32 int_data = 3",
        "packed double float64_data = 4", "packed uint32 uint32_data = 5", "packed bool bool_data = 6",
        "repeated string data = 9", "optional int32 elem_type = 10", "packed int32 shape = 11", "packed int32 lod = 12",
        "optional string name = 13", "optional string alias_name = 14", "optional bytes tensor_content = 15",
    ],
    "general.Request": [
        "repeated general.Tensor tensor = 1", "repeated string fetch_var_names = 2",
        "optional bool profile_server = 3", "optional uint64 log_id = 4",
    ],
    "general.Output": ["repeated general.Tensor tensor = 1", "optional string engine_name = 2"],
    "general.Response": [
        "repeated general.Output outputs = 1", "packed int64 profile_time = 2", "optional bool profile_server = 3",
        "optional uint64 log_id = 4", "optional int32 err_no = 5", "optional string err_msg = 6",
    ],
}  # fmt: skip


def _make_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for package in dict.fromkeys(name.partition(".")[0] for name in _MESSAGES):
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
        for name, fields in _MESSAGES.items():
            if not name.startswith(f"{package}."):
                continue
            message = file.message_type.add(name=name.partition(".")[2])
            for text in fields:
                label, kind, field, _, number = text.split()
                made = message.field.add(name=field, number=int(number))
                made.label = getattr(made, f"LABEL_{'REPEATED' if label == 'packed' else label.upper()}")
                if "." in kind:
                    made.type, made.type_name = made.TYPE_MESSAGE, f".{kind}"
                else:
                    made.type = getattr(made, f"TYPE_{kind.upper()}")
                if label == "packed":
                    made.options.packed = True
        pool.Add(file)
    return pool


_POOL = _make_pool()


def message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))()


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

    def __init__(self, port: int, timeout_s: float = 20.0) -> None:
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
        meta = message("rpc.Meta")
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
    meta = message("rpc.Meta")
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
        request.instances.add(sparse_ids=[signed(v) for v in ids], dense_ids=floats)
    return bytes(request.SerializeToString())


def signed(feasign: int) -> int:
    return feasign - (1 << 64) if feasign >= 1 << 63 else feasign
