"""Keeps versions in use from being pruned, for as long as this server says so."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from collections.abc import Sequence

from elasticctr.errors import ElasticCTRError
from elasticctr.obs import console
from elasticctr.serve.settings import ServedModelSettings
from elasticctr.versions.donefile import DONEFILE
from elasticctr.versions.repository import CUBE_PIN, Repository


class Pin:
    """One per model and server; it expires by itself when the server is gone for good."""

    def __init__(self, repository: Repository, settings: ServedModelSettings, place: str) -> None:
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:32]
        # Those of a server on a Cube are also what its transfer keeps in the Cube.
        kind = "serve" if settings.cube is None else CUBE_PIN
        self.name = f"{kind}-{host}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        self._repository, self._settings = repository, settings
        self._pinned: list[int] = []
        self._renewed_s = 0.0
        self._has_told = False

    def renew(self, versions: Sequence[int]) -> None:
        """Writes when the versions changed or a third of the time is over. A repository that cannot be written to is
        told of once: serving goes on."""
        wanted, now_s = sorted(set(versions)), time.monotonic()
        if not wanted or (wanted == self._pinned and now_s - self._renewed_s < self._settings.pin_s / 3):
            return
        try:
            # Writing makes directories: a repository that is away must not find one in its place when it comes back.
            if not self._repository.store.exists(f"{self._settings.published}/{DONEFILE}"):
                return
            self._repository.pin(self._settings.published, self.name, wanted, self._settings.pin_s)
        except (ElasticCTRError, OSError) as e:
            if not self._has_told:
                console.warn(f"{self._settings.name}: versions in use are not kept from pruning: {e}")
            self._has_told = True
        # Tried is enough: an unreachable repository is not asked at every turn.
        self._pinned, self._renewed_s = wanted, now_s
