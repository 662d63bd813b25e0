"""Versions with known rows: a row is a function of its feasign and of the version that wrote it.

    truth = Truth(seed=7)
    version = truth.define_base(1)
    publish(Repository("/srv/models"), truth, 1)
    verdict = truth.judge(places, client.get("ctr/embedding", truth.feasigns[places]))

A version's rows follow from the seed, its number and its parent alone, so two processes that define the same
versions agree. An answer is checked against the version it names: each row is right, or another version's (mixed),
or no version's (wrong).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.lookup import Lookup
from elasticctr.versions.donefile import DonefileEvent
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import MANIFEST, Manifest, Segment, parse_manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.writer import VersionWriter, append_event

Places = NDArray[np.int64]
MODEL, TABLE, DIM = "ctr", "embedding", 4


@dataclass(frozen=True, slots=True)
class Verdict:
    rows: int
    mixed: int
    wrong: int

    @property
    def is_right(self) -> bool:
        return self.mixed == 0 and self.wrong == 0


class Truth:
    def __init__(self, count: int = 4000, seed: int = 0) -> None:
        self._seed = seed
        random = np.random.default_rng(seed)
        self.feasigns = random.integers(0, 1 << 64, count, dtype=np.uint64)
        self.writers: dict[int, NDArray[np.int32]] = {}  # per version and feasign, who wrote its row; 0: no row
        self.parents: dict[int, int] = {}  # 0: a base

    @property
    def newest(self) -> int:
        return max(self.writers, default=0)

    def define(self, version: int, parent: int = 0, share: float = 0.1) -> int:
        """A base writes all rows but a twentieth; a delta rewrites a share and drops a hundredth."""
        draw = np.random.default_rng([self._seed, version]).random(len(self.feasigns))
        if parent:
            writers = np.where(draw < share, version, np.where(draw > 0.99, 0, self.writers[parent]))
        else:
            writers = np.where(draw < 0.05, 0, version)
        self.writers[version] = writers.astype(np.int32)
        self.parents[version] = parent
        return version

    def rows(self, version: int, places: Places) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """What a lookup in `version` must answer."""
        writers = self.writers[version][places]
        found = writers > 0
        return make_rows(self.feasigns[places], writers) * found[:, None], found

    def changes(self, version: int) -> tuple[Places, Places]:
        """Places a version writes, and those it takes away."""
        writers, parent = self.writers[version], self.parents[version]
        gone = np.flatnonzero((writers == 0) & (self.writers[parent] > 0)) if parent else np.zeros(0, np.int64)
        return np.flatnonzero(writers == version), gone

    def judge(self, places: Places, answer: Lookup) -> Verdict:
        if answer.version not in self.writers:
            return Verdict(len(places), 0, len(places))
        rows, found = self.rows(answer.version, places)
        bad = (answer.found != found) | (answer.rows != rows).any(axis=1)
        if not bad.any():
            return Verdict(len(places), 0, 0)
        own = make_rows(self.feasigns[places], answer.rows[:, 0].astype(np.int32))
        whole = np.where(answer.found, (answer.rows == own).all(axis=1), (answer.rows == 0).all(axis=1))
        writer = np.where(answer.found, answer.rows[:, 0], 0)
        real = whole & np.any([writer == writers[places] for writers in self.writers.values()], axis=0)
        return Verdict(len(places), int((bad & real).sum()), int((bad & ~real).sum()))


def publish(repository: Repository, truth: Truth, version: int, *, is_announced: bool = True) -> Manifest:
    """Publishes a defined version, as the trainer's publisher would."""
    written, gone = truth.changes(version)
    parent = truth.parents[version]
    rows = _Rows(truth.feasigns[written], make_rows(truth.feasigns[written], truth.writers[version][written]))
    above = parse_manifest(repository.store.read_bytes(f"{MODEL}/{parent}/{MANIFEST}"), "") if parent else None
    with PublisherLease(repository.store, MODEL) as lease:
        writer = VersionWriter(repository, MODEL, version, lease)
        writer.add_table(TABLE, (Segment(name="embedding", dim=DIM),), "fp32", rows, truth.feasigns[gone])
        manifest = writer.commit("delta" if parent else "base", above, {})
        if is_announced:
            writer.announce(manifest)
    return manifest


def announce(repository: Repository, version: int) -> None:
    """Adds a published version's line to the donefile, once more or at last."""
    data = repository.store.read_bytes(f"{MODEL}/{version}/{MANIFEST}")
    manifest = parse_manifest(data, str(version))
    digest = hashlib.sha256(data).hexdigest()
    event = DonefileEvent(0, "publish", version, manifest.kind, manifest.parent, manifest.base, digest, time.time())
    append_event(repository, MODEL, event)


def make_rows(feasigns: NDArray[np.uint64], writers: NDArray[np.int32]) -> NDArray[np.float32]:
    """Who wrote it, and the feasign in three pieces; every number is exact in 32 bits."""
    pieces = [feasigns & 0xFFFFF, (feasigns >> 20) & 0xFFFFF, feasigns >> 40]
    return np.stack([writers, *pieces], axis=1).astype(np.float32)


def buckets_of(feasigns: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The buckets of native/util/hash.h, implemented independently."""
    x = feasigns ^ (feasigns >> 30)
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> 27
    x = x * np.uint64(0x94D049BB133111EB)
    return np.asarray((x ^ (x >> 31)) >> 52, np.uint64)


@dataclass(frozen=True)
class _Rows:
    feasigns: NDArray[np.uint64]
    values: NDArray[np.float32]

    @property
    def estimate(self) -> int:
        return len(self.feasigns)

    def read(self, buckets: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        at = buckets_of(self.feasigns)
        mine = (at >= buckets[0]) & (at < buckets[1])
        yield self.feasigns[mine], self.values[mine]
