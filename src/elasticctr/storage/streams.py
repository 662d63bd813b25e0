"""Turns stored bytes into decompressed bytes. A file's first bytes, not its name, decide the compression."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import IO, Any, Protocol, TypeVar, runtime_checkable

from elasticctr.errors import Corruption, DataError, ElasticCTRError, InternalError
from elasticctr.storage.filesystem import explain

T = TypeVar("T")

_READ_BYTES = 1 << 20

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip", b"\x04\x22\x4d\x18": "lz4"}


@runtime_checkable
class Jumping(Protocol):
    """Raw bytes that cannot seek but can be reopened at a later offset."""

    def jump(self, offset: int) -> None: ...


class Stream:
    """A readable stream of decompressed bytes. Not for use by several threads at once."""

    def __init__(self, raw: IO[bytes], path: str) -> None:
        self._path = path
        self._raw = raw
        self._is_fresh = True  # nothing has been read
        buffered = io.BufferedReader(raw, _READ_BYTES)  # type: ignore[type-var]
        self._file: Any = buffered
        try:
            head = self._guard(lambda: buffered.peek(8))
            codec = next((name for magic, name in _CODECS.items() if head.startswith(magic)), None)
            foreign = next((name for magic, name in _FOREIGN.items() if head.startswith(magic)), None)
            if foreign is not None:
                raise DataError(f"is a {foreign} file; recompress it as .gz or .zst, or unpack it", path)
            self.is_compressed = codec is not None
            if codec is not None:
                import pyarrow as pa

                self._file = pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), codec)
        except BaseException:
            raw.close()
            raise

    def read_into(self, buffer: memoryview) -> int:
        """Fills `buffer`; a count below its length means the end of the stream."""
        filled = 0
        self._is_fresh = False
        while filled < len(buffer):
            rest = buffer[filled:]
            count = self._guard(partial(self._file.readinto, rest))
            if not count:
                break
            filled += count
        return filled

    def skip(self, count: int) -> None:
        """Skips `count` bytes. Compressed data before that point is decompressed and dropped."""
        if not self.is_compressed and self._raw.seekable():
            self._guard(lambda: self._file.seek(count, io.SEEK_CUR))
            return
        if not self.is_compressed and self._is_fresh and count > 0 and isinstance(self._raw, Jumping):
            raw = self._file.detach()
            self._guard(lambda: raw.jump(count))
            self._file = io.BufferedReader(raw, _READ_BYTES)
            return
        scratch = memoryview(bytearray(min(count, _READ_BYTES)))
        while count > 0:
            got = self.read_into(scratch[: min(count, len(scratch))])
            if got == 0:
                raise Corruption(f"{self._path}: ends before the position to resume from; has it changed?")
            count -= got

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _guard(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except ElasticCTRError:
            raise
        except OSError as e:
            if e.errno is not None:
                raise explain(e, self._path) from None
            # Arrow reports a damaged compressed stream as an error without errno.
            raise Corruption(f"{self._path}: damaged or truncated compressed data: {e}; fetch it again") from None
        except MemoryError:
            raise InternalError(f"{self._path}: out of memory while reading") from None
