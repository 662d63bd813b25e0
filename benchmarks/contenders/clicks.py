"""The click log of all contenders: made from a seed, kept as arrays and as slot text, loaded by every worker.

26 sparse slots with Criteo's cardinalities and Zipf(1.05) values hashed into one table of 1,000,001 ids (0 is never
used), 13 dense floats, and a click drawn from a hidden model of the dense floats, single values and pairs of slots.
The last tenth of the rows is held out. Needs numpy only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from metrics import auc, logloss
from numpy.typing import NDArray

VERSION = 1  # of the recipe below; goes into the folder's name
SLOTS, DENSE, DIM, TABLE = 26, 13, 9, 1_000_001
LAYERS = (512, 256, 128, 32)
LEARNING_RATE = 1e-3
CARDINALITIES = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
PAIRS = ((0, 5), (1, 8), (4, 13), (7, 16), (19, 21), (22, 24))
ZIPF = 1.05
PART_ROWS = 50_000  # of one text file


@dataclass(frozen=True)
class Rows:
    dense: NDArray[np.float32]  # [n, DENSE]
    ids: NDArray[np.int64]  # [n, SLOTS]
    labels: NDArray[np.float32]  # [n]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.dense[part], self.ids[part], self.labels[part])

    def batches(self, size: int) -> Iterator[Rows]:
        """Only full batches, in order: compiled models would recompile for a shorter one."""
        return (self[start : start + size] for start in range(0, len(self) - size + 1, size))


def load(folder: Path) -> tuple[Rows, Rows]:
    """Training rows and held-out rows."""
    rows = Rows(*(np.load(folder / f"{name}.npy") for name in ("dense", "ids", "labels")))
    held_out = len(rows) // 10
    return rows[: len(rows) - held_out], rows[len(rows) - held_out :]


def make(root: Path, count: int, seed: int = 1) -> Path:
    """The folder with `count` rows: the arrays, `train/` and `test/` as slot text, and `about.json`."""
    folder = root / f"clicks-v{VERSION}-{count}-{seed}"
    if folder.exists():
        return folder
    unfinished = root / f".{folder.name}.{os.getpid()}"
    unfinished.mkdir(parents=True)
    rows, chances = _draw(count, seed)
    for name in ("dense", "ids", "labels"):
        np.save(unfinished / f"{name}.npy", getattr(rows, name))
    train, test = load(unfinished)
    _write_text(unfinished / "train", train)
    _write_text(unfinished / "test", test)
    about = {
        "rows": count,
        "ctr": float(rows.labels.mean()),
        "distinct_ids": len(np.unique(rows.ids)),
        "best_auc": auc(test.labels, chances[len(train) :]),
        "best_logloss": logloss(test.labels, chances[len(train) :]),
    }
    (unfinished / "about.json").write_text(json.dumps(about))
    try:
        unfinished.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(unfinished)
    return folder


def _draw(count: int, seed: int) -> tuple[Rows, NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    ids = np.empty((count, SLOTS), np.int64)
    values = []
    logits = np.full(count, -1.6)
    for slot, cardinality in enumerate(CARDINALITIES):
        value = _mix(np.uint64(slot + 1) * np.uint64(1 << 40) + _draw_zipf(random, count, cardinality))
        ids[:, slot] = value % np.uint64(TABLE - 1) + np.uint64(1)
        logits += 0.28 * _effect(value, 1)
        values.append(value)
    for one, other in PAIRS:
        logits += 0.35 * _effect(values[one] ^ (values[other] << np.uint64(1)), 2)
    dense = np.log1p(random.exponential(3.0, (count, DENSE))) / 4
    dense *= random.random((count, DENSE)) >= 0.2
    # Five decimals survive float32 and text unchanged, so that text and arrays are the same samples.
    dense = dense.round(5)
    logits += (dense - dense.mean(0)) / dense.std(0) @ (0.2 * np.random.default_rng(99).normal(size=DENSE))
    chances = 1 / (1 + np.exp(-logits))
    labels = random.random(count) < chances
    return Rows(dense.astype(np.float32), ids, labels.astype(np.float32)), chances


def _draw_zipf(random: np.random.Generator, count: int, cardinality: int) -> NDArray[np.uint64]:
    """Ranks from 0: the inverse of the distribution function of a power law cut at `cardinality`."""
    tail = (cardinality + 1.0) ** (1 - ZIPF)
    rank = (1 + random.random(count) * (tail - 1)) ** (1 / (1 - ZIPF))
    return np.minimum(rank.astype(np.uint64) - np.uint64(1), np.uint64(cardinality - 1))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that spreads neighbours (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _effect(value: NDArray[np.uint64], salt: int) -> NDArray[np.float64]:
    """A standard normal number that belongs to `value`."""
    normals = np.random.default_rng(salt).normal(size=1 << 16)
    return normals[_mix(value + np.uint64(salt)) >> np.uint64(48)]


def _write_text(folder: Path, rows: Rows) -> None:
    folder.mkdir()
    line = "click:%d " + "dense_feature:%.6g " * DENSE + " ".join(f"{slot + 1}:%d" for slot in range(SLOTS)) + "\n"
    for number, start in enumerate(range(0, len(rows), PART_ROWS)):
        part = rows[start : start + PART_ROWS]
        columns = zip(part.labels.tolist(), part.dense.tolist(), part.ids.tolist(), strict=True)
        with (folder / f"part-{number:03d}.txt").open("w") as out:
            out.writelines(line % (label, *dense, *ids) for label, dense, ids in columns)


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), int(sys.argv[2])))
