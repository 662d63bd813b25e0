"""The bytes of a SequenceFile: header, and records of one fixed width (docs/how-to/interchange.md).

Two kinds are read and written. The plain one declares BytesWritable but omits its inner length, as Paddle's cube
tools do; the Hadoop one is what Hadoop itself writes. Both are records in sequence with a sync marker every few
thousand bytes, so a run of records is one strided array.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticctr.errors import Corruption, DataError

MAGIC = b"SEQ"
VERSION = 6
MARKER_BYTES = 16
ESCAPE = b"\xff\xff\xff\xff"
SYNC_EVERY = 2000  # payload bytes between two markers

BYTES = "org.apache.hadoop.io.BytesWritable"
LONG = "org.apache.hadoop.io.LongWritable"

_MAX_CLASS_BYTES = 127  # longer names need a VInt of several bytes; no supported name does
_MAX_METADATA = 1024
_MAX_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    key_class: str
    value_class: str
    marker: bytes
    size: int

    def encode(self) -> bytes:
        names = b"".join(bytes([len(name)]) + name.encode() for name in (self.key_class, self.value_class))
        return MAGIC + bytes([VERSION]) + names + b"\0\0" + struct.pack(">i", 0) + self.marker


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Offsets and lengths in every record of a file."""

    key_type: str  # numpy's name, with byte order
    key_offset: int
    value_offset: int
    value_bytes: int
    heads: tuple[tuple[int, bytes], ...]  # (offset, the 4 or 8 bytes every record has there)

    @property
    def stride(self) -> int:
        return self.value_offset + self.value_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        names = ["key", "value", *(f"head{i}" for i in range(len(self.heads)))]
        formats = [self.key_type, f"V{self.value_bytes}", *(f"<u{len(head)}" for _, head in self.heads)]
        offsets = [self.key_offset, self.value_offset, *(offset for offset, _ in self.heads)]
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self.stride})

    def matches(self, records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which records have the expected lengths."""
        good = np.ones(records.shape, dtype=bool)
        for i, (_, head) in enumerate(self.heads):
            good &= records[f"head{i}"] == int.from_bytes(head, "little")
        return good


def plain_layout(value_bytes: int) -> RecordLayout:
    """record length, key length 8, key (little-endian), value."""
    return RecordLayout("<u8", 8, 16, value_bytes, ((0, struct.pack(">ii", 8 + value_bytes, 8)),))


def hadoop_layout(value_bytes: int, key_class: str = BYTES) -> RecordLayout:
    """record length, key length, key, value; BytesWritable has its own length before its bytes."""
    heads: tuple[tuple[int, bytes], ...]
    if key_class == LONG:
        heads = ((0, struct.pack(">ii", 12 + value_bytes, 8)), (16, struct.pack(">i", value_bytes)))
        return RecordLayout(">u8", 8, 20, value_bytes, heads)
    lengths = struct.pack(">ii", 16 + value_bytes, 12)
    heads = ((0, lengths), (8, struct.pack(">i", 8)), (20, struct.pack(">i", value_bytes)))
    return RecordLayout("<u8", 12, 24, value_bytes, heads)


def parse_header(data: bytes, path: str) -> Header:
    """`data` is the start of the file, long enough for any header."""
    at = _Cursor(data, path)
    if at.take(3) != MAGIC:
        raise DataError("is not a SequenceFile: it does not start with SEQ", path)
    version = at.take(1)[0]
    if version != VERSION:
        raise DataError(
            f"SequenceFile format {version}; only {VERSION} is supported. Rewrite it with Hadoop 2 or later", path
        )
    key_class, value_class = at.class_name(), at.class_name()
    compressed, by_block = at.take(1)[0], at.take(1)[0]
    if compressed or by_block:
        raise DataError("is compressed inside; rewrite it without compression (mapreduce.output…compress=false)", path)
    (count,) = struct.unpack(">i", at.take(4))
    if not 0 <= count <= _MAX_METADATA:
        raise DataError(f"byte {at.position - 4}: {count} metadata entries; at most {_MAX_METADATA}", path)
    for _ in range(2 * count):
        at.take(at.vint(_MAX_TEXT_BYTES))
    marker = at.take(MARKER_BYTES)
    if key_class not in (BYTES, LONG) or value_class != BYTES:
        wanted = "BytesWritable or LongWritable keys and BytesWritable values"
        raise DataError(f"holds {key_class} and {value_class}; supported are {wanted}", path)
    return Header(key_class, value_class, marker, at.position)


def first_record(header: Header, data: bytes, position: int, path: str) -> RecordLayout:
    """The layout of a file, from the lengths in its first record (`data` starts there)."""
    if len(data) < 8:
        raise Corruption(f"{path}: byte {position}: ends inside a record; fetch it again")
    record_bytes, key_bytes = struct.unpack_from(">ii", data)
    where = f"byte {position}: "
    if record_bytes < 0 or key_bytes < 0 or key_bytes > record_bytes:
        raise Corruption(f"{path}: {where}a record of {record_bytes} bytes with a key of {key_bytes}")
    if header.key_class == LONG and key_bytes == 8:
        return hadoop_layout(_value_bytes(record_bytes - 12, where, path), LONG)
    if header.key_class == BYTES and key_bytes == 12:
        return hadoop_layout(_value_bytes(record_bytes - 16, where, path))
    if header.key_class == BYTES and key_bytes == 8:
        return plain_layout(_value_bytes(record_bytes - 8, where, path))
    raise DataError(f"{where}a key of {key_bytes} bytes; a feasign has 8", path)


def _value_bytes(count: int, where: str, path: str) -> int:
    if not 1 <= count <= 65_536:
        raise DataError(f"{where}a value of {count} bytes; a row has 1 to 65,536", path)
    return count


class _Cursor:
    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        self.position = 0

    def take(self, count: int) -> bytes:
        part = self._data[self.position : self.position + count]
        if len(part) < count:
            at = f"{self._path}: byte {len(self._data)}"
            raise Corruption(f"{at}: ends inside the header of a SequenceFile; fetch it again")
        self.position += count
        return part

    def class_name(self) -> str:
        return self.take(self.vint(_MAX_CLASS_BYTES)).decode("ascii", "replace")

    def vint(self, limit: int) -> int:
        """Hadoop's VInt: one byte for -112…127, otherwise a byte that says how many follow, big-endian."""
        (first,) = struct.unpack("b", self.take(1))
        value = first if first >= -112 else int.from_bytes(self.take(-112 - first), "big") if first >= -120 else -1
        if not 0 <= value <= limit:
            raise DataError(f"byte {self.position}: a text of {value} bytes in the header; at most {limit}", self._path)
        return int(value)
