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

from elasticctr.errors import ConfigError, DataError

DESCRIPTORS = Path(__file__).with_suffix(".binpb")


def make(name: str, **fields: Any) -> Any:
    return _class_of(name)(**fields)


def make_from_json(name: str, value: Mapping[str, Any]) -> bytes:
    """The bytes of the message that is `value` in protobuf's JSON."""
    message = make(name)
    from google.protobuf import json_format

    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return bytes(json_format.Parse(text, message).SerializeToString())


def parse(name: str, data: bytes) -> Any:
    """Raises DataError."""
    kind = _class_of(name)
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as e:
        raise DataError(f"not a message of type {name}: {e}") from None


def to_signed(value: int) -> int:
    """The int64 with the 64 bits of a feasign."""
    return value - (1 << 64) if value >= 1 << 63 else value


@cache
def _class_of(name: str) -> Any:
    pool = _pool()
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(pool.FindMessageTypeByName(name))


@cache
def _pool() -> Any:
    """Of our own: other packages put messages of the same names into the common one."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError:
        raise ConfigError("this needs the package protobuf; install it with: pip install 'elasticctr[serve]'") from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool
