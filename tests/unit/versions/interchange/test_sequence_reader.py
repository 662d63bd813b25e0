"""SequenceFiles: golden bytes, round trips through an independent parser, damage."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import Corruption, DataError, ElasticCTRError
from elasticctr.storage import open_store
from elasticctr.versions.interchange import RowInfo, open_rows, open_writer
from elasticctr.versions.interchange.sequence_writer import SequenceWriter

MARKER = bytes(range(16))
BYTES = b"org.apache.hadoop.io.BytesWritable"
LONG = b"org.apache.hadoop.io.LongWritable"


def parse_slowly(data: bytes) -> tuple[list[str], list[tuple[int, bytes]]]:
    """An independent reader, a record at a time: class names, and (key, value) as the classes say."""
    assert data[:4] == b"SEQ\x06"
    at, names = 4, []
    for _ in range(2):
        names.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    assert data[at : at + 6] == b"\0" * 6
    marker = data[at + 6 : at + 22]
    at += 22
    records, since = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size == -1:
            assert data[at + 4 : at + 20] == marker
            assert since >= 2000
            at, since = at + 20, 0
            continue
        assert since < 2000
        (key_size,) = struct.unpack_from(">i", data, at + 4)
        key, value = data[at + 8 : at + 8 + key_size], data[at + 8 + key_size : at + 8 + size]
        if key_size == 12:
            assert struct.unpack_from(">i", key) == (8,)
            key = key[4:]
        if key_size == 12 or names[0].endswith("LongWritable"):
            assert struct.unpack_from(">i", value) == (len(value) - 4,)
            value = value[4:]
        order = ">Q" if names[0].endswith("LongWritable") else "<Q"
        records.append((struct.unpack(order, key)[0], value))
        at, since = at + 8 + size, since + 8 + size
    return names, records


def make_rows(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    feasigns = rng.integers(0, 2**64, count, dtype=np.uint64)
    return feasigns, rng.integers(0, 256, (count, width), dtype=np.uint8)


def write(path: Path, feasigns: np.ndarray, rows: np.ndarray, kind: str = "plain", step: int = 1 << 20) -> Path:
    with path.open("wb") as file:
        writer = SequenceWriter(file, rows.shape[1], kind, MARKER)
        for i in range(0, len(feasigns), step):
            writer.write(feasigns[i : i + step], rows[i : i + step])
    return path


def read(path: Path, encoding: str | None = "raw") -> tuple[np.ndarray, np.ndarray]:
    source = open_rows(str(path), encoding)
    blocks = list(source.blocks())
    return np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])


def test_plain_file_is_byte_for_byte_as_documented(tmp_path: Path) -> None:
    path = write(tmp_path / "a.seq", np.array([0xFEDCBA9876543210], np.uint64), np.array([[1, 2, 3, 4]], np.uint8))
    header = b"SEQ\x06" + b"\x22" + BYTES + b"\x22" + BYTES + b"\0\0" + b"\0\0\0\0" + MARKER
    assert len(header) == 96
    record = b"\0\0\0\x0c" + b"\0\0\0\x08" + bytes.fromhex("1032547698badcfe") + b"\1\2\3\4"
    assert path.read_bytes() == header + record


def test_hadoop_file_is_byte_for_byte_as_documented(tmp_path: Path) -> None:
    feasigns, rows = np.array([0xFEDCBA9876543210], np.uint64), np.array([[1, 2, 3, 4]], np.uint8)
    data = write(tmp_path / "a.seq", feasigns, rows, "hadoop").read_bytes()
    assert data[96:] == bytes.fromhex("00000014 0000000c 00000008 1032547698badcfe 00000004 01020304")
    data = write(tmp_path / "b.seq", feasigns, rows, "hadoop_long").read_bytes()
    assert data[4:39] == b"\x21" + LONG + b"\x22"
    assert data[95:] == bytes.fromhex("00000010 00000008 fedcba9876543210 00000004 01020304")


@pytest.mark.parametrize("kind", ["plain", "hadoop", "hadoop_long"])
@pytest.mark.parametrize(
    ("count", "width", "step"), [(1, 4, 1), (35, 40, 7), (36, 40, 36), (1000, 40, 17), (500, 3000, 9)]
)
def test_round_trip_agrees_with_a_slow_parser(tmp_path: Path, kind: str, count: int, width: int, step: int) -> None:
    feasigns, rows = make_rows(count, width)
    path = write(tmp_path / "a.seq", feasigns, rows, kind, step)
    names, records = parse_slowly(path.read_bytes())
    assert names[0] == (LONG if kind == "hadoop_long" else BYTES).decode()
    assert [key for key, _ in records] == feasigns.tolist()
    assert [value for _, value in records] == [row.tobytes() for row in rows]
    keys, values = read(path)
    assert np.array_equal(keys, feasigns)
    assert np.array_equal(values, rows)


def test_file_longer_than_the_reading_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.versions.interchange.sequence_reader._BUFFER_BYTES", 5003)
    feasigns, rows = make_rows(3000, 20)
    keys, values = read(write(tmp_path / "a.seq", feasigns, rows, "hadoop"))
    assert np.array_equal(keys, feasigns)
    assert np.array_equal(values, rows)


def test_markers_at_irregular_places_and_marker_bytes_inside_a_value(tmp_path: Path) -> None:
    feasigns, rows = make_rows(600, 20)
    rows[77] = np.frombuffer(b"\xff\xff\xff\xff" + MARKER, np.uint8)
    data, rng = bytearray(write(tmp_path / "h", feasigns[:0], rows[:0]).read_bytes()), np.random.default_rng(3)
    for key, row in zip(feasigns, rows, strict=True):
        data += struct.pack(">ii", 28, 8) + struct.pack("<Q", key) + row.tobytes()
        if rng.random() < 0.1:
            data += b"\xff\xff\xff\xff" + MARKER
    (tmp_path / "a.seq").write_bytes(data)
    keys, values = read(tmp_path / "a.seq")
    assert np.array_equal(keys, feasigns)
    assert np.array_equal(values, rows)


def test_header_metadata_is_skipped(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.seq", *make_rows(3, 8)).read_bytes()
    text = b"\x03key" + b"\x8f\xc8" + b"v" * 200  # VInt of 200: one byte follows
    (tmp_path / "a.seq").write_bytes(plain[:76] + struct.pack(">i", 1) + text + plain[80:])
    assert len(read(tmp_path / "a.seq")[0]) == 3


def test_directory_of_parts_with_an_empty_one(tmp_path: Path) -> None:
    feasigns, rows = make_rows(50, 8)
    write(tmp_path / "part-0", feasigns[:0], rows[:0])
    write(tmp_path / "part-1", feasigns[:20], rows[:20])
    write(tmp_path / "part-2", feasigns[20:], rows[20:], "hadoop")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-1.crc").write_bytes(b"crc\0")
    source = open_rows(str(tmp_path))
    assert (source.info.encoding, source.info.dim) == ("fp32", 2)
    assert np.array_equal(read(tmp_path)[0], feasigns)
    write(tmp_path / "part-3", *make_rows(5, 12))
    with pytest.raises(DataError, match=r"part-3: values of 12 bytes; those in earlier files have 8"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("at", "change", "error", "message"),
    [
        (0, b"SEX", DataError, "is not a SequenceFile"),
        (3, b"\x04", DataError, "format 4"),
        (74, b"\x01", DataError, "compressed"),
        (30, b"Text", DataError, "BytesWritable"),
        (76, b"\x7f", DataError, "metadata"),
        (96 + 4, b"\0\0\0\x07", DataError, "byte 96: a key of 7 bytes"),
        (96 + 56 * 3 + 3, b"\x2c", DataError, "byte 264: a value of 36 bytes; those before have 40"),
        (96 + 56 * 36 + 19, b"\x00", Corruption, "byte 2112: a wrong sync marker"),
        (96 + 56 * 36 + 20 + 56 * 5, b"\x80", Corruption, "byte 2412: a record of -"),
    ],
)
def test_damage_is_named_with_its_place(
    tmp_path: Path, at: int, change: bytes, error: type[Exception], message: str
) -> None:
    path = write(tmp_path / "a.seq", *make_rows(100, 40))
    data = bytearray(path.read_bytes())
    data[at : at + len(change)] = change
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_lengths_inside_a_hadoop_record_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.seq", *make_rows(10, 40), kind="hadoop")
    data = bytearray(path.read_bytes())
    data[96 + 64 * 4 + 23] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption, match="byte 352: lengths inside a record"):
        read(path)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.seq", *make_rows(40, 40))
    data = path.read_bytes()
    whole = {96 + 56 * i for i in range(37)} | {96 + 56 * i + 20 for i in range(36, 41)}
    for size in (*range(0, len(data), 7), *whole):
        path.write_bytes(data[:size])
        if size in whole - {96}:
            read(path)
        else:
            with pytest.raises((Corruption, DataError)):
                read(path)


def test_mutated_files_only_raise_typed_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    originals = [
        write(tmp_path / k, *make_rows(120, 12), kind=k).read_bytes() for k in ("plain", "hadoop", "hadoop_long")
    ]
    path = tmp_path / "mutated.seq"
    for round_ in range(600):
        data = bytearray(originals[round_ % 3])
        for _ in range(int(rng.integers(1, 6))):
            # Headers and lengths are where it hurts; half of the blows go there.
            at = int(rng.integers(0, 140 if rng.random() < 0.5 else len(data)))
            data[at] = int(rng.integers(0, 256))
        if rng.random() < 0.3:
            del data[int(rng.integers(0, len(data))) :]
        path.write_bytes(data)
        try:
            keys, values = read(path, None if rng.random() < 0.5 else "raw")
        except ElasticCTRError:
            continue
        assert len(keys) == len(values)


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    info = RowInfo("raw", 0, 4)
    with pytest.raises(RuntimeError), open_writer(open_store(str(tmp_path)), "a.seq", "sequence", info) as writer:
        writer.write(*make_rows(10, 4))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
