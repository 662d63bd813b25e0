"""Compressed streams are recognised by content; damage and truncation are errors."""

from __future__ import annotations

import bz2
import gzip
import os
import random
from pathlib import Path

import pytest
import zstandard

from elasticctr.errors import Corruption, DataError
from elasticctr.storage import resolve

_RNG = random.Random(1)
DATA = b"".join(b"line %d %x\n" % (i, _RNG.getrandbits(40)) for i in range(100_000))

CODECS = {
    "plain": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1),
    "zstd": zstandard.ZstdCompressor().compress,
}


def read(path: Path, offset: int = 0) -> bytes:
    with resolve(str(path))[0].open(offset) as stream:
        parts = []
        buffer = bytearray(1 << 20)
        while count := stream.read_into(memoryview(buffer)):
            parts.append(bytes(buffer[:count]))
        return b"".join(parts)


@pytest.mark.parametrize("codec", CODECS)
def test_compression_is_told_by_content_not_by_name(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "log.gz.zst.txt"
    path.write_bytes(CODECS[codec](DATA))
    assert read(path) == DATA
    for offset in (0, 1, 1 << 20, len(DATA) - 1):
        assert read(path, offset) == DATA[offset:]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_files_put_together_from_several(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(CODECS[codec](DATA) + CODECS[codec](b"") + CODECS[codec](b"end\n"))
    assert read(path) == DATA + b"end\n"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("cut", [9, 1000, -1, -5])
def test_truncated(tmp_path: Path, codec: str, cut: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(CODECS[codec](DATA)[:cut])
    with pytest.raises(Corruption, match=r"log: damaged or truncated"):
        read(path)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_flipped_bits(tmp_path: Path, codec: str) -> None:
    compress = CODECS[codec] if codec == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress
    original = compress(DATA[: 1 << 18])
    rng = random.Random(3)
    for _ in range(20):
        stored = bytearray(original)
        at = rng.randrange(20, len(stored))
        stored[at] ^= 1 << rng.randrange(8)
        path = tmp_path / "log"
        path.write_bytes(stored)
        with pytest.raises(Corruption, match="log"):
            read(path)


def test_an_archive_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "log.bz2"
    path.write_bytes(bz2.compress(DATA))
    with pytest.raises(DataError, match=r"is a bzip2 file; recompress it"):
        read(path)


def test_an_empty_file_and_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    assert read(path) == b""
    source = resolve(str(path))[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        source.open()


def test_a_position_past_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(b"short\n"))
    with pytest.raises(Corruption, match="ends before the position"):
        resolve(str(path))[0].open(100)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"from a pipe\n")
    os.close(write_end)
    try:
        assert read(Path(f"/dev/fd/{read_end}")) == b"from a pipe\n"
    finally:
        os.close(read_end)
