"""Rolls back to an earlier version: one more line in the donefile, no other file changes."""

from __future__ import annotations

import hashlib
import time

from elasticctr.errors import FailedPrecondition
from elasticctr.versions.donefile import DonefileEvent
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import MANIFEST, Manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.writer import append_event


def rollback(repository: Repository, model: str, version: int | None = None) -> Manifest:
    """Makes `version`, or by default the previously live one, live again."""
    with PublisherLease(repository.store, model) as lease:
        live = repository.live(model)
        target = live.previous if version is None else version
        if target == 0:
            raise FailedPrecondition(f"{repository.url}/{model}: version {live.version} is the only one")
        if target == live.version:
            raise FailedPrecondition(f"{repository.url}/{model}: version {target} is already live")
        manifest = repository.chain(model, target)[-1]
        digest = hashlib.sha256(repository.store.read_bytes(f"{model}/{target}/{MANIFEST}")).hexdigest()
        event = DonefileEvent(0, "rollback", target, manifest.kind, manifest.parent, manifest.base, digest, time.time())
        lease.renew()
        append_event(repository, model, event)
    return manifest
