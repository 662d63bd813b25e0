"""Rows on the servers of a Cube: whether it has a version yet, and a source of that version's rows.

The Cube changes versions in its own time. Each version here asks for rows of its own number, so rows and graph never
mix, and it may answer only once every shard has it. Unless it was requested by hand, it also waits until the Cube's
transfer has decided on it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elasticctr.config.tls import TlsSettings
from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import load_conf
from elasticctr.errors import DeadlineExceeded, FailedPrecondition, NotFound, Unavailable
from elasticctr.obs.watch import Watch
from elasticctr.serve.activation.served_version import CubeRows

_PROBES = 64  # random feasigns per shard: they miss a shard once in 10^27 times
_ASK_S = 0.2
_CALL_S = 2.0


class RemoteRows:
    def __init__(self, conf: Path, model: str, tls: TlsSettings | None = None) -> None:
        """`tls` is used for servers if `conf` does not set it."""
        settings = [
            one if one.tls or not tls else one.model_copy(update={"tls": tls}) for one in load_conf(conf, model)
        ]
        self._client = CubeClient(settings)
        self._model = model
        self._where = str(conf)
        shards = max(len(cluster.shards) for cluster in settings)
        self._probes = np.random.default_rng(0).integers(0, 1 << 64, _PROBES * shards, dtype=np.uint64)

    @property
    def rows(self) -> CubeRows:
        return CubeRows(self._client, self._model)

    def check_has(self, version: int, identity: str, tables: tuple[str, ...]) -> None:
        """Raises FailedPrecondition if a shard lacks the version or has other contents under its number, Unavailable if
        one does not answer."""
        self._client.connect(_CALL_S)
        others = self._client.identities(self._model, version) - {identity}
        if others:
            raise FailedPrecondition(
                f"the Cube of {self._where} has another version {version}: {min(others)[:12]}…, not {identity[:12]}…"
            )
        for table in tables:
            try:
                self._client.get(f"{self._model}/{table}", self._probes, version, _CALL_S)
            except NotFound as e:
                raise FailedPrecondition(f"the Cube of {self._where} does not have version {version}: {e}") from None

    def find_active(self) -> int:
        """The version that the Cube's servers answer from, which transfer has decided on. Raises FailedPrecondition if
        there is none, Unavailable if a shard does not answer."""
        tables = [table for table in self._client.connect(_CALL_S) if table.startswith(f"{self._model}/")]
        active = {self._client.get(table, self._probes, None, _CALL_S).version for table in tables}
        if len(active) != 1:
            found = " and ".join(str(version) for version in sorted(active)) or "no version"
            raise FailedPrecondition(f"the Cube of {self._where} answers from {found} of {self._model}")
        return active.pop()

    def has(self, version: int, identity: str, tables: tuple[str, ...]) -> bool | None:
        """Whether every shard has a version; None if unknown."""
        try:
            self.check_has(version, identity, tables)
        except FailedPrecondition:
            return False
        except (Unavailable, DeadlineExceeded):
            return None
        return True

    def wait_for(
        self,
        version: int,
        identity: str,
        tables: tuple[str, ...],
        longest_s: float,
        watch: Watch,
        *,
        decided: bool = False,
    ) -> None:
        """Returns once every shard has the version and, with `decided`, answers from it: a version that servers have
        only received may still be withdrawn. Raises DeadlineExceeded, or what `watch` does."""
        patience = Watch(longest_s)
        while True:
            watch.check()
            try:
                if decided and (active := self.find_active()) != version:
                    raise FailedPrecondition(f"the Cube of {self._where} is at version {active}, not yet at {version}")
                self.check_has(version, identity, tables)
                return
            except (FailedPrecondition, Unavailable, DeadlineExceeded, NotFound) as e:
                try:
                    patience.check()
                except DeadlineExceeded:
                    raise DeadlineExceeded(f"the Cube was not ready within {longest_s:g} s: {e}") from None
            watch.pause(_ASK_S)
