"""Rows for tests of cube files: a row is a function of (version, feasign), so any answer can be checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.build.builder import BuildOptions, BuildResult, Target, build_tables
from elasticctr.versions.interchange.rows import RowInfo

DIM = 4


def rows_of(version: int, feasigns: NDArray[np.uint64], dim: int = DIM) -> NDArray[np.float32]:
    low = (feasigns % np.uint64(1 << 20)).astype(np.float32)
    return low[:, None] + np.arange(dim, dtype=np.float32) * 0.25 + version * 1000


def draw(rng: np.random.Generator, count: int) -> NDArray[np.uint64]:
    """Distinct feasigns: small ones, huge ones, and the two at the ends."""
    drawn = np.concatenate([rng.integers(0, 2**64, count, dtype=np.uint64), np.arange(count, dtype=np.uint64)])
    drawn = np.unique(np.concatenate([drawn, np.array([0, 2**64 - 1], dtype=np.uint64)]))
    return rng.permutation(drawn)


@dataclass
class Rows:
    """A RowSource of arrays."""

    feasigns: NDArray[np.uint64]
    values: NDArray[np.float32]
    taken: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    block: int = 1000
    count: int | None = None

    @property
    def info(self) -> RowInfo:
        return RowInfo("fp32", self.values.shape[1], 4 * self.values.shape[1])

    def blocks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint8]]]:
        for start in range(0, len(self.feasigns), self.block):
            part = slice(start, start + self.block)
            yield self.feasigns[part], np.ascontiguousarray(self.values[part]).view(np.uint8)

    def gone(self) -> Iterator[NDArray[np.uint64]]:
        yield self.taken


def build(
    out: Path,
    version: int,
    feasigns: NDArray[np.uint64],
    *,
    parent: int = 0,
    gone: NDArray[np.uint64] | None = None,
    options: BuildOptions | None = None,
    table: str = "t",
    dim: int = DIM,
) -> BuildResult:
    taken = np.zeros(0, np.uint64) if gone is None else gone
    source = Rows(feasigns, rows_of(version, feasigns, dim), taken)
    return build_tables({table: source}, out, Target("m", version, parent), options)


def expect(
    model: Mapping[int, int], asked: NDArray[np.uint64], dim: int = DIM
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The answer of a table, where `model` says which version wrote each feasign."""
    rows = np.zeros((len(asked), dim), np.float32)
    found = np.zeros(len(asked), bool)
    for place, feasign in enumerate(asked.tolist()):
        if feasign in model:
            found[place] = True
            rows[place] = rows_of(model[feasign], asked[place : place + 1], dim)[0]
    return rows, found
