"""Text rows: lines of `feasign:v1,v2,…`, with commas or spaces between numbers. Also reads `feasign show click v1 v2 …`
and drops show and click. Arrow parses blocks of lines; only blocks it refuses are read line by line, to accept odd
spacing or to say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from elasticctr.errors import DataError
from elasticctr.storage import Source
from elasticctr.versions.interchange.rows import MAX_ROW_BYTES, Block, Feasigns, RowBytes, RowInfo

_BUFFER_BYTES = 8 << 20
_MOST = float(np.finfo(np.float32).max)
_TO_COMMAS = bytes.maketrans(b": \t;", b",,,,")


class TextRows:
    """The lines of one or more files, all with as many numbers as the first."""

    def __init__(self, files: Sequence[Source]) -> None:
        self._files = files
        for file in files:
            line = next((line for lines, _ in _pieces(file) for line in lines.splitlines() if line.strip()), None)
            if line is not None:
                break
        else:
            raise DataError("holds no rows", files[0].path)
        self._skip = 1 if b":" in line else 3  # columns before the numbers
        dim = len(_split(line)) - self._skip
        if not 1 <= dim <= MAX_ROW_BYTES // 4:
            raise DataError(f"is not `feasign:v1,v2,…`: {_show(line)}", file.path)
        self.info = RowInfo("fp32", dim, 4 * dim)

    @property
    def count(self) -> int | None:
        return None

    def blocks(self) -> Iterator[Block]:
        for file in self._files:
            for lines, first in _pieces(file):
                feasigns, values = self._parse(lines) or self._parse_slowly(lines, file.path, first)
                yield feasigns, values.view(np.uint8)

    def gone(self) -> Iterator[Feasigns]:
        return iter(())

    def _parse(self, lines: bytes) -> tuple[Feasigns, npt.NDArray[np.float32]] | None:
        dim = self.info.dim
        names = ["feasign", *(f"skip{i}" for i in range(1, self._skip)), *(f"v{i}" for i in range(dim))]
        types = {"feasign": pa.uint64(), **{f"v{i}": pa.float32() for i in range(dim)}}
        try:
            table = csv.read_csv(
                pa.BufferReader(lines.translate(_TO_COMMAS)),
                csv.ReadOptions(column_names=names, block_size=_BUFFER_BYTES + (1 << 16)),
                csv.ParseOptions(quote_char=False),
                csv.ConvertOptions(column_types=types, null_values=[], include_columns=list(types)),
            )
        except pa.ArrowException:
            return None
        values = np.empty((table.num_rows, dim), np.float32)
        for i in range(dim):
            values[:, i] = table.column(i + 1).to_numpy()
        if not np.isfinite(values).all():
            return None
        return table.column(0).to_numpy(), values

    def _parse_slowly(self, lines: bytes, path: str, first: int) -> tuple[Feasigns, npt.NDArray[np.float32]]:
        feasigns, values = [], []
        for number, line in enumerate(lines.splitlines(), first):
            if not line.strip():
                continue
            fields = _split(line)
            try:
                feasign = int(fields[0])
                row = [float(field) for field in fields[self._skip :]]
            except ValueError:
                raise DataError(f"is not `feasign:v1,v2,…`: {_show(line)}", path, number) from None
            if not 0 <= feasign < 1 << 64:
                raise DataError(f"feasign {feasign} is not an unsigned 64-bit number", path, number)
            if len(row) != self.info.dim:
                raise DataError(f"{len(row)} numbers; the first line has {self.info.dim}", path, number)
            if bad := [
                field for field, value in zip(fields[self._skip :], row, strict=True) if not abs(value) <= _MOST
            ]:
                raise DataError(f"{_show(bad[0])} is not a finite 32-bit float", path, number)
            feasigns.append(feasign)
            values.append(row)
        return np.array(feasigns, np.uint64), np.array(values, np.float32).reshape(-1, self.info.dim)


class TextRowWriter:
    """`feasign:v1,v2,…`, each number in the shortest form that reads back as the same float."""

    def __init__(self, file: IO[bytes], dim: int) -> None:
        self._dim = dim
        self._file = file

    def write(self, feasigns: Feasigns, rows: RowBytes) -> None:
        values = np.ascontiguousarray(rows).view("<f4").reshape(len(feasigns), self._dim)
        columns = [np.ascontiguousarray(values[:, i]) for i in range(self._dim)]
        numbers = join([to_text(column) for column in columns], ",")
        lines = join([join([to_text(feasigns), numbers], ":"), pa.scalar("", pa.large_string())], "\n")
        if len(lines):
            self._file.write(memoryview(lines.buffers()[2]))

    def finish(self) -> None:
        pass


def _pieces(file: Source) -> Iterator[tuple[bytes, int]]:
    """Whole lines, a few MiB at a time, and the number of the first one."""
    buffer, rest, number = memoryview(bytearray(_BUFFER_BYTES)), b"", 1
    with file.open() as stream:
        while True:
            filled = stream.read_into(buffer)
            data = rest + bytes(buffer[:filled])
            end = len(data) if filled < len(buffer) else data.rfind(b"\n") + 1
            if end == 0 and data:
                raise DataError(
                    f"a line of more than {len(data):,} bytes; is this a text file of rows?", file.path, number
                )
            lines, rest = data[:end], data[end:]
            if lines.strip():
                yield lines, number
            number += lines.count(b"\n")
            if filled < len(buffer):
                return


def to_text(numbers: npt.NDArray[Any]) -> pa.Array:
    return pc.cast(pa.array(numbers), pa.large_string())


def join(texts: Sequence[Any], separator: str) -> pa.Array:
    """Concatenates texts element by element."""
    return pc.binary_join_element_wise(*texts, pa.scalar(separator, pa.large_string()))


def _split(line: bytes) -> list[bytes]:
    return line.translate(_TO_COMMAS).replace(b",", b" ").split()


def _show(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text + ("…" if len(line) > 60 else ""))
