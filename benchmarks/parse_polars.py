"""The polars side of parse.py, run in polars' own environment with POLARS_MAX_THREADS=1.

usage: parse_polars.py FOLDER, then one task per line of input. Every answer is {"seconds": …}; `save TASK` also writes
the arrays to FOLDER for parse.py to compare.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

folder = Path(sys.argv[1])
slot_text = (folder / "slot.txt").read_bytes()
criteo_text = (folder / "criteo.txt").read_bytes()
split_text = slot_text.replace(b":", b" ")

PAIRS = [f"c{i}" for i in range(80)]
VALUES = PAIRS[1::2]
CELLS = [f"c{i}" for i in range(40)]


def read_pairs(text: bytes) -> pl.DataFrame:
    types = dict.fromkeys(PAIRS, pl.String) | {
        name: pl.Float32 if i < 14 else pl.UInt64 for i, name in enumerate(VALUES)
    }
    frame = pl.scan_csv(io.BytesIO(text), separator=" ", has_header=False, schema=types, quote_char=None)
    return frame.select(VALUES).collect()


def slot_full() -> dict[str, np.ndarray]:
    frame = read_pairs(slot_text.replace(b":", b" "))
    return {
        "labels": frame[VALUES[0]].to_numpy(),
        "dense": frame.select(VALUES[1:14]).to_numpy(),
        "ids": frame.select(VALUES[14:]).to_numpy(),
    }


def slot_read() -> object:
    types = dict.fromkeys(CELLS, pl.String)
    return pl.read_csv(io.BytesIO(slot_text), separator=" ", has_header=False, schema=types, quote_char=None)


def slot_read_split() -> object:
    return read_pairs(split_text)


def read_criteo() -> pl.DataFrame:
    types = {name: pl.Float32 if i < 14 else pl.String for i, name in enumerate(CELLS)}
    return pl.read_csv(io.BytesIO(criteo_text), separator="\t", has_header=False, schema=types, quote_char=None)


def criteo_full() -> dict[str, np.ndarray]:
    frame = read_criteo()
    strings = frame.select(CELLS[14:])
    return {
        "labels": frame[CELLS[0]].to_numpy(),
        "dense": frame.select(pl.col(CELLS[1:14]).fill_null(0)).to_numpy(),
        "ids": strings.select(pl.all().hash()).to_numpy(),
        "is_there": strings.select(pl.all().is_not_null()).to_numpy(),
    }


tasks: dict[str, Callable[[], object]] = {
    task.__name__: task for task in (slot_full, slot_read, slot_read_split, read_criteo, criteo_full)
}
for line in sys.stdin:
    verb, _, name = line.strip().rpartition(" ")
    started = time.perf_counter()
    result = tasks[name]()
    elapsed = time.perf_counter() - started
    if verb == "save" and isinstance(result, dict):
        np.savez(folder / f"polars_{name}.npz", **result)
    print(json.dumps({"seconds": elapsed}), flush=True)
