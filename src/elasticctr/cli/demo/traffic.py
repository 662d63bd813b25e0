"""A client that keeps asking, and holds every answer against the rows the trainer had for the version it names."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.client import CubeClient
from elasticctr.cube.lookup import Lookup
from elasticctr.errors import ElasticCTRError

KEYS = 100
PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table as the trainer had it: feasigns ascending, and their rows."""

    feasigns: NDArray[np.uint64]
    rows: NDArray[np.float32]

    def agrees(self, feasigns: NDArray[np.uint64], answer: Lookup) -> NDArray[np.bool_]:
        """Which of an answer's rows are as they are here; one that is not here must be missing there."""
        places = np.searchsorted(self.feasigns, feasigns).clip(max=len(self.feasigns) - 1)
        found = self.feasigns[places] == feasigns
        same = (answer.rows == np.where(found[:, None], self.rows[places], 0)).all(axis=1)
        return np.asarray(same & (answer.found == found))


@dataclass
class TrafficCounts:
    requests: int = 0
    rows: int = 0
    errors: int = 0
    mixed: int = 0  # answers with rows that are not of the version they name
    by_version: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    first_error: str = ""

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.latencies_s, percent)) * 1000 if self.latencies_s else 0.0


class Traffic:
    """Runs in a thread between `with` and its end. `tables` are the versions an answer may name; add one before it is
    published."""

    def __init__(self, settings: Path, table: str, tables: dict[int, TableRows]) -> None:
        self.counts = TrafficCounts()
        self._client = CubeClient(settings)
        self._table = table
        self._tables = tables
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(10)
        self._client.close()

    def _run(self) -> None:
        random = np.random.default_rng(0)
        known = next(iter(self._tables.values())).feasigns
        while not self._is_over.wait(PAUSE_S):
            feasigns = random.choice(known, KEYS)
            started = time.perf_counter()
            try:
                answer = self._client.get(self._table, feasigns)
            except ElasticCTRError as e:
                self.counts.errors += 1
                self.counts.first_error = self.counts.first_error or f"{e.code}: {e}"
            else:
                self.counts.latencies_s.append(time.perf_counter() - started)
                self._judge(feasigns, answer)
            self.counts.requests += 1

    def _judge(self, feasigns: NDArray[np.uint64], answer: Lookup) -> None:
        counts = self.counts
        counts.rows += len(feasigns)
        counts.by_version[answer.version] = counts.by_version.get(answer.version, 0) + 1
        table = self._tables.get(answer.version)
        if table is None or not table.agrees(feasigns, answer).all():
            counts.mixed += 1
