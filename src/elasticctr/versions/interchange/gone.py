"""`.gone.txt` beside exported rows: the feasigns that a delta drops, one per line. Other tools cannot delete and
skip files whose names start with a dot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from elasticctr.errors import DataError
from elasticctr.storage import Source, Store
from elasticctr.versions.interchange.rows import Block, Feasigns, RowSource
from elasticctr.versions.interchange.text import join, to_text

GONE = ".gone.txt"
_READ_BYTES = 8 << 20


class WithGone:
    """Rows, and the dropped feasigns that a file beside them lists."""

    def __init__(self, rows: RowSource, file: Source) -> None:
        self.info = rows.info
        self.count = rows.count
        self._rows = rows
        self._file = file

    def blocks(self) -> Iterator[Block]:
        return self._rows.blocks()

    def gone(self) -> Iterator[Feasigns]:
        buffer, rest = memoryview(bytearray(_READ_BYTES)), b""
        with self._file.open() as stream:
            while True:
                filled = stream.read_into(buffer)
                data = rest + bytes(buffer[:filled])
                end = len(data) if filled < len(buffer) else data.rfind(b"\n") + 1
                words, rest = data[:end].split(), data[end:]
                if any(len(word) > 20 or not word.isdigit() for word in words) or len(rest) > 64:
                    raise DataError("must hold one feasign per line", self._file.path)
                try:
                    if words:
                        yield np.array(words, "S20").astype(np.uint64)
                except OverflowError:
                    raise DataError("holds a number of more than 64 bits", self._file.path) from None
                if filled < len(buffer):
                    return


def write_gone(store: Store, name: str, gone: Iterable[Feasigns]) -> int:
    """Returns how many. Writes no file if there are none."""
    blocks = (feasigns for feasigns in gone if len(feasigns))
    first = next(blocks, None)
    if first is None:
        return 0
    count = 0
    with store.create(name) as file:
        for feasigns in chain([first], blocks):
            lines = join([to_text(feasigns), pa.scalar("", pa.large_string())], "\n")
            file.write(memoryview(lines.buffers()[2]))
            count += len(feasigns)
    return count
