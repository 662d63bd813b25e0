"""Versions without a model: rows are a function of (version, feasign), the other files are made up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.versions import Manifest, Repository, Segment
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.writer import VersionWriter

DIM = 3


def row_values(version: int, feasigns: NDArray[np.uint64]) -> NDArray[np.float32]:
    return (feasigns[:, None] % 97 + 1000.0 * version + np.arange(DIM)).astype(np.float32)


class MadeRows:
    def __init__(self, version: int, feasigns: list[int]) -> None:
        self._version = version
        self._feasigns = np.array(feasigns, dtype=np.uint64)

    @property
    def estimate(self) -> int:
        return len(self._feasigns)

    def read(self, buckets: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        inside = [f for f in self._feasigns.tolist() if buckets[0] <= _native.bucket_of(f) < buckets[1]]
        chosen = np.array(inside, dtype=np.uint64)
        yield chosen, row_values(self._version, chosen)


def publish(
    repository: Repository,
    model: str,
    version: int,
    rows: list[int],
    gone: list[int] | None = None,
    parent: Manifest | None = None,
) -> Manifest:
    with PublisherLease(repository.store, model) as lease:
        writer = VersionWriter(repository, model, version, lease)
        writer.add_file("schema.json", b"{}")
        writer.add_file("metrics.json", b'{"valid": {"auc": 0.75}}')
        writer.add_table(
            "main",
            (Segment(name="embedding", dim=DIM),),
            "fp32",
            MadeRows(version, rows),
            np.array(gone or [], dtype=np.uint64),
        )
        manifest = writer.commit("base" if parent is None else "delta", parent, {})
        writer.announce(manifest)
    return manifest
