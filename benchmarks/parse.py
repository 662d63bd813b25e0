"""Parses text into arrays on one core: ours against plain Python, polars and pyarrow on the same bytes.

Slot text (`click:0 dense_feature:… 1:… 26:…`) and Criteo text, made here from a seed. Ours runs as in training: blocks
of 4 MiB into labels, dense floats and feasigns. Peers get the whole text at once and are measured twice: until they
have the arrays a trainer needs, and for reading it as CSV only. Ratios use the better result of the peer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pc

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.formats.blocks import BLOCK_BYTES
from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import DenseSlot, Format, Schema, SparseSlot
from measure import WORK, Peer, interleave, make_environment, parse_arguments, print_result, seconds

FOLDER = WORK / "parse"
SLOTS, NUMBERS = 26, 13
PASSES = 5
SLOT_SCHEMA = Schema(
    slots=(DenseSlot(name="dense_feature", dim=NUMBERS), *(SparseSlot(name=str(s + 1)) for s in range(SLOTS)))
)
CRITEO_SCHEMA = Schema(
    format=Format.CRITEO,
    slots=(DenseSlot(name="numbers", dim=NUMBERS), *(SparseSlot(name=f"C{s + 1}") for s in range(SLOTS))),
)


def make_data(rows: int) -> dict[str, np.ndarray]:
    """Writes slot.txt and criteo.txt and returns what they hold."""
    rng = np.random.default_rng(1)
    labels = (rng.random(rows) < 0.25).astype(np.float32)
    floats = np.round(np.log1p(rng.exponential(3.0, (rows, NUMBERS))) / 4, 6)
    floats[rng.random(floats.shape) < 0.2] = 0
    ids = rng.zipf(1.2, (rows, SLOTS)).astype(np.uint64) * np.uint64(2654435761) % np.uint64(1000001)
    numbers = np.minimum(rng.pareto(0.8, (rows, NUMBERS)) * 3, 99999).astype(np.int64) - (
        rng.random((rows, NUMBERS)) < 0.03
    )
    has_number = rng.random(numbers.shape) < 0.8
    strings = ids * np.uint64(40503) % np.uint64(2**32)
    has_string = rng.random(strings.shape) < 0.88
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "slot.txt").open("w") as slot, (FOLDER / "criteo.txt").open("w") as criteo:
        for i in range(rows):
            cells = [f"dense_feature:{x:.6g}" for x in floats[i].tolist()]
            cells += [f"{s + 1}:{x}" for s, x in enumerate(ids[i].tolist())]
            slot.write(f"click:{labels[i]:.0f} {' '.join(cells)}\n")
            cells = [str(x) if there else "" for x, there in zip(numbers[i], has_number[i], strict=True)]
            cells += [f"{x:08x}" if there else "" for x, there in zip(strings[i].tolist(), has_string[i], strict=True)]
            criteo.write(f"{labels[i]:.0f}\t" + "\t".join(cells) + "\n")
    dense = np.array([[float(f"{x:.6g}") for x in row] for row in floats.tolist()], np.float32)
    filled = np.where(has_number, numbers, 0).astype(np.float32)
    return {"labels": labels, "dense": dense, "ids": ids, "numbers": filled, "strings": strings, "is_there": has_string}


def cut(text: bytes) -> list[memoryview]:
    blocks, start = [], 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + BLOCK_BYTES) + 1
        blocks.append(memoryview(text)[start:end])
        start = end
    return blocks


def parse_ours(parser: Parser, blocks: list[memoryview]) -> int:
    """Drops one batch after another, like a training loop."""
    return sum(len(parser.parse(block).batch) for block in blocks)


def parse_slot_python(text: bytes) -> dict[str, np.ndarray]:
    index = {str(s + 1): s for s in range(SLOTS)}
    labels, dense, ids = [], [], []
    for line in text.decode().splitlines():
        numbers, values = [], [0] * SLOTS
        for token in line.split(" "):
            name, value = token.split(":")
            if name == "dense_feature":
                numbers.append(float(value))
            elif name == "click":
                labels.append(float(value))
            elif name in index:
                values[index[name]] = int(value)
        dense.append(numbers)
        ids.append(values)
    return {
        "labels": np.array(labels, np.float32),
        "dense": np.array(dense, np.float32),
        "ids": np.array(ids, np.uint64),
    }


def parse_criteo_python(text: bytes) -> dict[str, np.ndarray]:
    labels, dense, ids = [], [], []
    for line in text.decode().splitlines():
        cells = line.split("\t")
        labels.append(float(cells[0]))
        dense.append([float(x) if x else 0.0 for x in cells[1:14]])
        ids.append([hash(x) & 0xFFFFFFFFFFFFFFFF if x else 0 for x in cells[14:]])
    return {
        "labels": np.array(labels, np.float32),
        "dense": np.array(dense, np.float32),
        "ids": np.array(ids, np.uint64),
    }


def read_arrow(text: bytes, delimiter: str, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    return pc.read_csv(
        pa.BufferReader(text),
        pc.ReadOptions(column_names=names, use_threads=False, block_size=4 << 20),
        pc.ParseOptions(delimiter=delimiter, quote_char=False),
        pc.ConvertOptions(include_columns=list(types), column_types=types),
    )


PAIRS, CELLS = [f"c{i}" for i in range(80)], [f"c{i}" for i in range(40)]
PAIR_TYPES = {name: pa.float32() if i < 14 else pa.uint64() for i, name in enumerate(PAIRS[1::2])}
CRITEO_TYPES = {name: pa.float32() if i < 14 else pa.string() for i, name in enumerate(CELLS)}


def parse_slot_arrow(text: bytes) -> dict[str, np.ndarray]:
    columns = [c.to_numpy() for c in read_arrow(text.replace(b":", b" "), " ", PAIRS, PAIR_TYPES).columns]
    return {"labels": columns[0], "dense": np.stack(columns[1:14], 1), "ids": np.stack(columns[14:], 1)}


def parse_criteo_arrow(text: bytes) -> dict[str, np.ndarray]:
    columns = read_arrow(text, "\t", CELLS, CRITEO_TYPES).columns
    dense = np.stack([c.fill_null(0).to_numpy() for c in columns[1:14]], 1)
    strings = [c.combine_chunks() for c in columns[14:]]
    ids = np.stack([c.dictionary_encode().indices.to_numpy(zero_copy_only=False) for c in strings], 1)
    is_there = np.stack([pyarrow.compute.not_equal(c, "").to_numpy(zero_copy_only=False) for c in strings], 1)
    return {"labels": columns[0].to_numpy(), "dense": dense, "ids": ids, "is_there": is_there}


def check_ours(batch: Batch, data: dict[str, np.ndarray], format: Format) -> None:
    is_slot = format is Format.SLOT
    assert np.array_equal(batch.labels[:, 0], data["labels"])
    assert np.array_equal(batch.dense, data["dense" if is_slot else "numbers"])
    for s in range(SLOTS):
        values, offsets = batch.slot(s)
        if is_slot:
            assert np.array_equal(values, data["ids"][:, s])
            continue
        assert np.array_equal(np.diff(offsets), data["is_there"][:, s])
        strings = data["strings"][data["is_there"][:, s], s][:500].tolist()
        assert values[: len(strings)].tolist() == [_native.feature_hash(f"C{s + 1}", b"%08x" % x) for x in strings]


def check_peer(result: dict[str, np.ndarray], data: dict[str, np.ndarray], format: Format) -> None:
    is_slot, rows = format is Format.SLOT, len(result["labels"])
    assert np.array_equal(result["labels"], data["labels"][:rows])
    assert np.array_equal(result["dense"], data["dense" if is_slot else "numbers"][:rows])
    if is_slot:
        assert np.array_equal(result["ids"], data["ids"][:rows])
    elif "is_there" in result:
        assert np.array_equal(result["is_there"], data["is_there"][:rows])


def measure(format: Format, data: dict[str, np.ndarray], polars: Peer, rounds: int) -> dict[str, float]:
    """Bytes per second of all contestants, after checking that they read the same."""
    is_slot = format is Format.SLOT
    text = (FOLDER / f"{format.value}.txt").read_bytes()
    rows = len(data["labels"])
    small = text[: text.index(b"\n", len(text) // 20) + 1]  # for plain Python, which is the slowest by far
    parser = Parser(SLOT_SCHEMA if is_slot else CRITEO_SCHEMA, threads=1)
    blocks = cut(text)
    split_text = text.replace(b":", b" ")
    python = parse_slot_python if is_slot else parse_criteo_python
    arrow = parse_slot_arrow if is_slot else parse_criteo_arrow
    polars_tasks = ["slot_full", "slot_read", "slot_read_split"] if is_slot else ["criteo_full", "read_criteo"]

    check_ours(Batch.concat([parser.parse(block).batch for block in blocks]), data, format)
    check_peer(python(small), data, format)
    check_peer(arrow(text), data, format)
    polars.ask(f"save {polars_tasks[0]}")
    check_peer(dict(np.load(FOLDER / f"polars_{polars_tasks[0]}.npz")), data, format)

    def ask(task: str) -> Callable[[], float]:
        return lambda: float(polars.ask(task)["seconds"])

    contestants: dict[str, Callable[[], float]] = {
        # Several passes, so that its turn in a round lasts about as long as a peer's.
        "ours": lambda: seconds(lambda: [parse_ours(parser, blocks) for _ in range(PASSES)]) / PASSES,
        "python": lambda: seconds(lambda: python(small)) * len(text) / len(small),
        "pyarrow": lambda: seconds(lambda: arrow(text)),
        "polars": ask(polars_tasks[0]),
        "polars, CSV alone": ask(polars_tasks[1]),
    }
    if is_slot:
        strings = dict.fromkeys(CELLS, pa.string())
        contestants["pyarrow, CSV alone"] = lambda: seconds(lambda: read_arrow(text, " ", CELLS, strings))
        contestants["pyarrow, colons gone before"] = lambda: seconds(
            lambda: read_arrow(split_text, " ", PAIRS, PAIR_TYPES)
        )
        contestants["polars, colons gone before"] = ask(polars_tasks[2])
    else:
        contestants["pyarrow, CSV alone"] = lambda: seconds(lambda: read_arrow(text, "\t", CELLS, CRITEO_TYPES))
    times = interleave(contestants, rounds)

    print(f"\n{format.value} text, {len(text) / 1e6:.0f} MB, {rows} rows, one core, median of {rounds}")
    for name, elapsed in sorted(times.items(), key=lambda item: item[1]):
        rate = f"{len(text) / elapsed / 1e6:8.0f} MB/s {rows / elapsed / 1e3:8.0f} k rows/s"
        print(f"  {name:28}{rate}   ours is {elapsed / times['ours']:.2f} x")
    return {name: len(text) / elapsed for name, elapsed in times.items()}


def main() -> None:
    quick = parse_arguments(__doc__ or "").quick
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    data = make_data(20_000 if quick else 150_000)
    python = make_environment("polars", ["polars==2.1.0", "numpy"])
    script = Path(__file__).with_name("parse_polars.py")
    polars = Peer(python, script, str(FOLDER), environment={"POLARS_MAX_THREADS": "1"})
    rates = {format: measure(format, data, polars, 5 if quick else 11) for format in (Format.SLOT, Format.CRITEO)}
    polars.close()
    best = {
        peer: min(r["ours"] / max(v for name, v in r.items() if name.startswith(peer)) for r in rates.values())
        for peer in ("polars", "pyarrow", "python")
    }
    print("\nours against the best of each peer, the worse of both texts:", {k: round(v, 2) for k, v in best.items()})
    print_result(
        {
            "slot_mb_s_core": rates[Format.SLOT]["ours"] / 1e6,
            "criteo_mb_s_core": rates[Format.CRITEO]["ours"] / 1e6,
            **{f"vs_{peer}": ratio for peer, ratio in best.items()},
        }
    )


if __name__ == "__main__":
    main()
