"""The exact progress of a run with pservers: the coordinator learns of samples only when a chunk is done, but pserver 0
counts every push it applies.
"""

from __future__ import annotations

import json
from pathlib import Path

from elasticctr.errors import ElasticCTRError
from elasticctr.ps.addresses import find_coordinator
from elasticctr.ps.coordinator.pserver_client import ControlClient
from elasticctr.ps.coordinator_client import CoordinatorClient
from elasticctr.ps.identity import build, job_identity
from elasticctr.train import load_job


class PushCounter:
    """Counts the pushes of one run, which need not have started."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._client: ControlClient | None = None
        self._address: str | None = None

    def count(self) -> int | None:
        """Pushes applied so far; None while pserver 0 cannot be reached."""
        try:
            if self._client is None or self._address is None:
                self._find()
            if self._client is None or self._address is None:
                return None
            return int(self._client.control(self._address, {"op": "stats"}, 2.0)["pushes"])
        except (ElasticCTRError, OSError, ValueError, KeyError):
            return None

    def _find(self) -> None:
        job = load_job(self._run / "job.yaml")
        if job.cluster is None:
            return
        identity = job_identity(job)
        token = (self._run / "cluster" / "token").read_text().strip()
        about = {"role": "tool", "build": build(), "identity": identity.text, "strategy": job.cluster.strategy}
        self._client = ControlClient(identity.number, 0, json.dumps(about), token)
        coordinator = CoordinatorClient(find_coordinator(str(self._run)), token)
        try:
            self._address = coordinator.pservers()[0].address
        finally:
            coordinator.close()
