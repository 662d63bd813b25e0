"""Writes SequenceFiles: the plain layout that Paddle's cube tools read, or the one that Hadoop and Spark read."""

from __future__ import annotations

import os
from typing import IO

import numpy as np

from elasticctr.versions.interchange.rows import Feasigns, RowBytes
from elasticctr.versions.interchange.sequence_layout import (
    BYTES,
    ESCAPE,
    LONG,
    MARKER_BYTES,
    SYNC_EVERY,
    Header,
    hadoop_layout,
    plain_layout,
)


class SequenceWriter:
    """`kind` is "plain", "hadoop" (BytesWritable keys) or "hadoop_long" (LongWritable keys). A marker precedes the
    first record that begins 2000 bytes or more after the last one."""

    def __init__(self, file: IO[bytes], row_bytes: int, kind: str = "plain", marker: bytes | None = None) -> None:
        self._layout = {
            "plain": plain_layout(row_bytes),
            "hadoop": hadoop_layout(row_bytes),
            "hadoop_long": hadoop_layout(row_bytes, LONG),
        }[kind]
        self._period = -(-SYNC_EVERY // self._layout.stride)
        self._run = 0  # records since the last marker
        marker = marker or os.urandom(MARKER_BYTES)
        self._sync = np.frombuffer(ESCAPE + marker, np.uint8)
        self._file = file
        self._file.write(Header(LONG if kind == "hadoop_long" else BYTES, BYTES, marker, 0).encode())

    def write(self, feasigns: Feasigns, rows: RowBytes) -> None:
        room = self._period - self._run
        first, whole = feasigns[:room], (len(feasigns) - room) // self._period * self._period
        self._write_runs(first, rows[:room], len(first), marked=False)
        self._run += len(first)
        if whole > 0:
            self._write_runs(feasigns[room : room + whole], rows[room : room + whole], self._period, marked=True)
            room += whole
        if len(feasigns) > room:
            self._write_runs(feasigns[room:], rows[room:], len(feasigns) - room, marked=True)
            self._run = len(feasigns) - room

    def _write_runs(self, feasigns: Feasigns, rows: RowBytes, length: int, marked: bool) -> None:
        """Runs of `length` records each, with a marker before each if `marked`."""
        if length == 0:
            return
        layout = self._layout
        count, lead = len(feasigns) // length, len(self._sync) if marked else 0
        size = lead + length * layout.stride
        out = np.empty((count, size), np.uint8)
        out[:, :lead] = self._sync[:lead]
        records = np.ndarray((count, length), layout.dtype, out.data, lead, (size, layout.stride))
        for i, (_, head) in enumerate(layout.heads):
            records[f"head{i}"] = int.from_bytes(head, "little")
        records["key"] = feasigns.reshape(count, length)
        records["value"] = np.ascontiguousarray(rows).view(f"V{layout.value_bytes}").reshape(count, length)
        self._file.write(out.data)

    def finish(self) -> None:
        pass
