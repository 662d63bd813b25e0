"""The agent's side of its cube server's HTTP API."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from elasticctr.cube.shared.names import may_be_same
from elasticctr.errors import DataError, DeadlineExceeded, NotFound, Unavailable
from elasticctr.net.answers import error_named
from elasticctr.net.client import Peer
from elasticctr.obs.watch import Watch

_POLL_S = 0.02
_SLOW_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Resident:
    version: int
    parent: int
    state: str
    error: str
    identity: str = ""  # empty: not known


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """`next` has the active version's number but other contents; activating that number replaces the active one."""

    active: int
    previous: int
    versions: dict[int, Resident]
    next: Resident | None = None

    def find(self, version: int, identity: str | None) -> Resident | None:
        """The state of the version with this identity or, without one, with this number."""
        found, coming = self.versions.get(version), self.next
        if found is not None and may_be_same(found.identity, identity):
            return found
        is_coming = coming is not None and coming.version == version and may_be_same(coming.identity, identity)
        if is_coming or found is None or found.state == "ready":
            return coming if is_coming else None
        return found  # being loaded, or failed: its identity is unknown

    def is_ready(self, version: int, identity: str | None = None) -> bool:
        found = self.find(version, identity)
        return found is not None and found.state == "ready"


NOTHING = ModelStatus(0, 0, {})


class CubeServerApi:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @property
    def url(self) -> str:
        return self._peer.url

    def status(self, *, timeout_s: float = 2.0) -> dict[str, ModelStatus]:
        answer = self._peer.get("/v1/status", timeout_s=timeout_s)
        try:
            return {str(model["name"]): _parse_model(model) for model in answer["models"]}
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"{self.url}/v1/status: not a cube server's answer ({e!r}); check the address") from None

    def model(self, model: str) -> ModelStatus:
        return self.status().get(model, NOTHING)

    def load(self, model: str, version: int, identity: str | None, watch: Watch) -> None:
        """Returns when the version is resident and checked. Raises the server's error."""
        answer = self._peer.post("/v1/load", {"model": model, "version": version})
        pause_s, failures = _POLL_S, 0
        while answer.get("state") != "ready":
            watch.pause(pause_s)
            pause_s = min(pause_s * 1.5, _SLOW_POLL_S)
            try:
                found = self.model(model).find(version, identity)
                failures = 0
            except (Unavailable, DeadlineExceeded):
                failures += 1
                if failures >= 3:
                    raise
                continue
            if found is None:
                raise Unavailable(f"{self.url}: is no longer loading version {version} of {model}; was it restarted?")
            if found.state == "failed":
                raise error_named(found.error, f"{self.url}: version {version} of {model}")
            answer = {"state": found.state}

    def activate(self, model: str, version: int) -> dict[str, Any]:
        return self._peer.post("/v1/activate", {"model": model, "version": version})

    def retire(self, model: str, version: int) -> None:
        with contextlib.suppress(NotFound):
            self._peer.post("/v1/retire", {"model": model, "version": version})


def _parse_model(model: Any) -> ModelStatus:
    versions = [_parse_version(version) for version in model["versions"]]
    coming = _parse_version(model["next"]) if model.get("next") else None
    found = {one.version: one for one in versions}
    return ModelStatus(int(model.get("active") or 0), int(model.get("previous") or 0), found, coming)


def _parse_version(version: Any) -> Resident:
    error = version.get("error") or ""
    if isinstance(error, dict):
        error = f"{error.get('code', '')}: {error.get('message', '')}"
    number, parent = int(version["version"]), int(version.get("parent") or 0)
    return Resident(number, parent, str(version["state"]), str(error), str(version.get("identity") or ""))
