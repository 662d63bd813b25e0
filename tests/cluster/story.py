"""Shared by fault stories: a cluster, versions with known rows, and load that checks every answer.

with Story(tmp_path, replicas=2) as story:
    story.begin()                       # version 1 live everywhere, load running
    …                                   # the fault
    story.wait_live(story.delta())
    story.end()                         # no error, no mixed and no wrong row; every replica has every row
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.versions.repository import Repository
from tests.cluster.harness import TOKEN, Cluster, Instance
from tests.cluster.load import Load, Report
from tests.cluster.truth import MODEL, TABLE, Truth, publish

FULL_NAME = f"{MODEL}/{TABLE}"
# A machine that starts ten processes answers late; stories test correctness, not milliseconds.
PATIENT: dict[str, Any] = {"timeout_ms": 20_000, "connect_ms": 3000, "backup_ms": 100}


class Story:
    def __init__(self, root: Path, shards: int = 2, replicas: int = 1, count: int = 4000, **settings: Any) -> None:
        self.cluster = Cluster(root, shards, replicas, MODEL, **settings)
        self.repository = Repository(str(self.cluster.repository))
        self.truth = Truth(count)
        self.load: Load | None = None

    def begin(self, rate: float = 100, load: bool = True, **client: Any) -> None:
        """Everything started, version 1 live everywhere, and load on it."""
        self.cluster.start()
        self.base()
        self.wait_live(1)
        if load:
            self.start_load(rate, **client)

    def start_load(self, rate: float = 100, keys: int = 50, prefix: Sequence[str] = (), **client: Any) -> None:
        count = len(self.truth.feasigns)
        settings = PATIENT | client
        self.load = Load(self.addresses(), TOKEN, count=count, rate=rate, keys=keys, client=settings, prefix=prefix)
        for version, parent in self.truth.parents.items():
            self.load.define(version, parent)
        self.load.start()

    def base(self, *, announce: bool = True) -> int:
        return self._publish(0, announce)

    def delta(self, parent: int | None = None, *, announce: bool = True) -> int:
        return self._publish(parent or self.truth.newest, announce)

    def define(self, version: int, parent: int = 0) -> int:
        """Defines a version that answers may come from, from now on."""
        self.truth.define(version, parent)
        if self.load is not None:
            self.load.define(version, parent)
        return version

    def wait_live(self, version: int, timeout_s: float = 120, *, everywhere: bool = True) -> None:
        self.cluster.wait_live(version, timeout_s, everywhere=everywhere)

    def catch(self, state: str, version: int, timeout_s: float = 60) -> None:
        """Returns while transfer is in this state of rolling `version` out, or once that is over."""
        deadline = time.monotonic() + timeout_s
        path = self.cluster.state / "models" / MODEL / "journal.json"
        while time.monotonic() < deadline:
            journal = json.loads(path.read_bytes()) if path.exists() else {}
            rollout = journal.get("rollout") or {}
            if (journal.get("state"), rollout.get("version")) == (state, version) or journal.get("live") == version:
                return
            time.sleep(0.001)
        raise AssertionError(f"transfer was not seen {state} version {version} within {timeout_s:g} s")

    def addresses(self) -> list[list[str]]:
        return [
            [_address(one) for one in self.cluster.instances if one.shard == shard]
            for shard in range(self.cluster.shards)
        ]

    def client(self, shards: list[list[str]] | None = None, **settings: Any) -> CubeClient:
        return CubeClient(CubeSettings(shards=shards or self.addresses(), **(PATIENT | settings)), TOKEN)

    def check_everywhere(self, version: int) -> None:
        """Every row of the active version, from every replica."""
        places = np.arange(len(self.truth.feasigns))
        for replica in range(self.cluster.replicas):
            with self.client([[replicas[replica]] for replicas in self.addresses()]) as client:
                answer = client.get(FULL_NAME, self.truth.feasigns)
                assert answer.version == version
                verdict = self.truth.judge(places, answer)
                assert verdict.is_right, (replica, verdict)

    def end(self, version: int | None = None, errors: int = 0) -> Report:
        """The load's report, without a mixed or wrong row and with at most `errors` errors."""
        if version is not None:
            self.check_everywhere(version)
        assert self.load is not None
        report = self.load.stop()
        report.check(errors)
        return report

    def __enter__(self) -> Story:
        self.cluster.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if self.load is not None:
                self.load.__exit__(kind, error, tb)
        finally:
            self.cluster.__exit__(kind, error, tb)

    def _publish(self, parent: int, announce: bool) -> int:
        version = self.define(self.truth.newest + 1, parent)
        publish(self.repository, self.truth, version, is_announced=announce)
        return version


def _address(instance: Instance) -> str:
    return f"{instance.host}:{instance.server_port}"
