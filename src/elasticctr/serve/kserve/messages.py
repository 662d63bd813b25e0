"""Encodes and decodes the gRPC messages of KServe V2 except predictions. They are few and small, so serving does not
need the protobuf package. proto/open_inference.proto has the names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elasticctr.errors import DataError

_MAX_VARINT_BYTES = 10
_CONFIG_TYPES = {"TYPE_UINT64": 5, "TYPE_FP32": 11, "TYPE_STRING": 13}


def encode_bool(value: bool) -> bytes:
    """A message whose field 1 is the bool."""
    return _number(1, value)


def encode_number(field: int, value: int) -> bytes:
    return _number(field, value)


def encode_server_metadata(metadata: Mapping[str, Any]) -> bytes:
    return (
        _text(1, metadata["name"])
        + _text(2, metadata["version"])
        + b"".join(_text(3, extension) for extension in metadata["extensions"])
    )


def encode_model_metadata(metadata: Mapping[str, Any]) -> bytes:
    def tensor(field: int, one: Mapping[str, Any]) -> bytes:
        return _bytes(field, _text(1, one["name"]) + _text(2, one["datatype"]) + _numbers(3, one["shape"]))

    return (
        _text(1, metadata["name"])
        + b"".join(_text(2, version) for version in metadata["versions"])
        + _text(3, metadata["platform"])
        + b"".join(tensor(4, one) for one in metadata["inputs"])
        + b"".join(tensor(5, one) for one in metadata["outputs"])
    )


def encode_model_config(config: Mapping[str, Any]) -> bytes:
    def begin(one: Mapping[str, Any]) -> bytes:
        return _text(1, one["name"]) + _number(2, _CONFIG_TYPES[one["data_type"]])

    inputs = [begin(one) + _numbers(4, one["dims"]) + _number(8, one["optional"]) for one in config["input"]]
    outputs = [begin(one) + _numbers(3, one["dims"]) for one in config["output"]]
    return _bytes(
        1,
        _text(1, config["name"])
        + _text(2, config["platform"])
        + _number(4, config["max_batch_size"])
        + b"".join(_bytes(5, one) for one in inputs)
        + b"".join(_bytes(6, one) for one in outputs)
        + _text(17, config["backend"]),
    )


def encode_repository_index(models: Sequence[Mapping[str, str]]) -> bytes:
    return b"".join(
        _bytes(1, b"".join(_text(i + 1, one[key]) for i, key in enumerate(("name", "version", "state", "reason"))))
        for one in models
    )


def encode_statistics(statistics: Sequence[Mapping[str, Any]]) -> bytes:
    def durations(stats: Mapping[str, Mapping[str, int]]) -> bytes:
        return b"".join(
            _bytes(i + 1, _number(1, stats[key]["count"]) + _number(2, stats[key]["ns"]))
            for i, key in enumerate(("success", "fail"))
        )

    return b"".join(
        _bytes(
            1,
            _text(1, one["name"])
            + _text(2, one["version"])
            + _number(4, one["inference_count"])
            + _number(5, one["execution_count"])
            + _bytes(6, durations(one["inference_stats"])),
        )
        for one in statistics
    )


def decode_fields(message: bytes) -> dict[int, int | bytes]:
    """The fields of a message by number, the last of each. Raises DataError."""
    return dict(_fields(message))


def decode_texts(message: bytes, *fields: int) -> list[str]:
    """Text fields by number, empty where absent. Raises DataError."""
    found = decode_fields(message)
    texts = [found.get(field, b"") for field in fields]
    try:
        return [text.decode() if isinstance(text, bytes) else str(text) for text in texts]
    except UnicodeDecodeError:
        raise DataError("a string of the message is not UTF-8") from None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _read_varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise DataError(f"the message has a field of unknown wire type {kind}")
        if size > len(message) - at:
            raise DataError("the message ends inside a field")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(_MAX_VARINT_BYTES):
        if at + i >= len(message):
            raise DataError("the message ends inside a number")
        byte = message[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise DataError("the message has a number of more than 64 bits")


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode("utf-8", "replace")) if value else b""


def _numbers(field: int, values: Sequence[int]) -> bytes:
    return _bytes(field, b"".join(_varint(value) for value in values))
