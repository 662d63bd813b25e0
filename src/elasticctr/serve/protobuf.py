"""Messages of the protocols we speak, by their full names in proto/*.proto. `tools/proto.sh` compiles those into
protobuf.binpb beside this file.

    request = parse("inference.ModelMetadataRequest", body)
    make("inference.ServerLiveResponse", live=True).SerializeToString()

Predictions do not come here: the native codecs read and write those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from elasticctr.errors import DataError

DESCRIPTORS = Path(__file__).with_suffix(".binpb")


def make(name: str, **fields: Any) -> Any:
    return _class_of(name)(**fields)


def make_from_json(name: str, value: Mapping[str, Any]) -> bytes:
    """The bytes of the message that is `value` in protobuf's JSON."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return bytes(json_format.Parse(text, make(name)).SerializeToString())


def parse(name: str, data: bytes) -> Any:
    """Raises DataError."""
    try:
        return _class_of(name).FromString(data)
    except DecodeError as e:
        raise DataError(f"not a message of type {name}: {e}") from None


def to_signed(value: int) -> int:
    """The int64 with the 64 bits of a feasign."""
    return value - (1 << 64) if value >= 1 << 63 else value


@cache
def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> Any:
    """Of our own: other packages put messages of the same names into the common one."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool
