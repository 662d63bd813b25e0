"""Protects versions in use from pruning as long as this server renews the pin."""

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
    """One per model and server. It expires by itself once the server is gone."""

    def __init__(self, repository: Repository, settings: ServedModelSettings, place: str) -> None:
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:32]
        # The pins of a server on a Cube also tell the transfer what to keep in the Cube.
        kind = "serve" if settings.cube is None else CUBE_PIN
        self.name = f"{kind}-{host}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        self._repository, self._settings = repository, settings
        self._pinned: list[int] = []
        self._renewed_s = 0.0
        self._has_told = False

    def renew(self, versions: Sequence[int]) -> None:
        """Writes the pin if the versions changed or a third of its time is over. Warns once about a repository that
        cannot be written to; serving continues."""
        wanted, now_s = sorted(set(versions)), time.monotonic()
        if not wanted or (wanted == self._pinned and now_s - self._renewed_s < self._settings.pin_s / 3):
            return
        try:
            # Writing creates directories; an unmounted repository must not find one in its place when it returns.
            if not self._repository.store.exists(f"{self._settings.published}/{DONEFILE}"):
                return
            self._repository.pin(self._settings.published, self.name, wanted, self._settings.pin_s)
        except (ElasticCTRError, OSError) as e:
            if not self._has_told:
                console.warn(f"{self._settings.name}: versions in use are not protected from pruning: {e}")
            self._has_told = True
        # Failed attempts count too: an unreachable repository is not tried at every turn.
        self._pinned, self._renewed_s = wanted, now_s
