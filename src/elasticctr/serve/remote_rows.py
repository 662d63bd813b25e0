"""Rows on the servers of a Cube: whether it has a version yet, and a source of exactly that version's rows.

The Cube changes versions in its own time. A version of ours asks for its own number, so rows and graph never mix; it
may answer only once every shard has it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elasticctr.control.watch import Watch
from elasticctr.cube.client import Client
from elasticctr.cube.conf import load_conf
from elasticctr.errors import DeadlineExceeded, FailedPrecondition, NotFound, Unavailable
from elasticctr.serve.served_version import CubeRows

_PROBES = 64  # feasigns per shard: one of each is among them but for one time in 10^27
_ASK_S = 0.2
_CALL_S = 2.0


class RemoteRows:
    def __init__(self, conf: Path, model: str) -> None:
        settings = load_conf(conf, model)
        self._client = Client(settings)
        self._model = model
        self._where = str(conf)
        shards = max(len(cluster.shards) for cluster in settings)
        self._probes = np.random.default_rng(0).integers(0, 1 << 64, _PROBES * shards, dtype=np.uint64)

    @property
    def rows(self) -> CubeRows:
        return CubeRows(self._client, self._model)

    def check_has(self, version: int, tables: tuple[str, ...]) -> None:
        """Raises FailedPrecondition if a shard does not have the version, Unavailable if one does not answer."""
        for table in tables:
            try:
                self._client.get(f"{self._model}/{table}", self._probes, version, _CALL_S)
            except NotFound as e:
                raise FailedPrecondition(f"the Cube of {self._where} does not have version {version}: {e}") from None

    def wait_for(self, version: int, tables: tuple[str, ...], longest_s: float, watch: Watch) -> None:
        """Returns once every shard has the version. Raises DeadlineExceeded, or what `watch` does."""
        patience = Watch(longest_s)
        while True:
            watch.check()
            try:
                self.check_has(version, tables)
                return
            except (FailedPrecondition, Unavailable, DeadlineExceeded) as e:
                try:
                    patience.check()
                except DeadlineExceeded:
                    raise DeadlineExceeded(f"waited {longest_s:g} s for the Cube: {e}") from None
            watch.pause(_ASK_S)
