"""Which versions may go, and their removal. Never the live one, the one live before it, a pinned one, or anything these
stand on. Called with the model's lease held."""

from __future__ import annotations

from elasticctr.errors import NotFound
from elasticctr.publish.lease import Lease
from elasticctr.publish.manifest import MANIFEST, Manifest
from elasticctr.publish.repository import Repository


def removable(repository: Repository, model: str, keep: int) -> list[int]:
    """Versions that are neither among the newest `keep` nor in use, oldest first."""
    manifests = {manifest.version: manifest for manifest in repository.versions(model)}
    needed = set(sorted(manifests)[-keep:] if keep > 0 else [])
    needed |= set(repository.pinned(model))
    try:
        live = repository.live(model)
        needed |= {live.version, live.previous}
    except NotFound:
        pass
    for version in list(needed):
        manifest: Manifest | None = manifests.get(version)
        needed |= set(manifest.chain) if manifest is not None else set()
    return sorted(set(manifests) - needed)


def prune(repository: Repository, model: str, keep: int) -> list[int]:
    """Removes what may go; returns which. The donefile keeps its lines."""
    with Lease(repository.store, model):
        return remove(repository, model, removable(repository, model, keep))


def remove(repository: Repository, model: str, versions: list[int]) -> list[int]:
    # Deltas before what they stand on, and the manifest first: what is half removed is not taken for a version.
    for version in reversed(versions):
        repository.store.delete(f"{model}/{version}/{MANIFEST}")
        repository.store.delete_tree(f"{model}/{version}")
    return versions


def clean(repository: Repository, model: str) -> list[int]:
    """Removes what killed publishers and removals left: directories nobody announced or without a manifest."""
    announced = {event.version for event in repository.events(model)}
    repository.store.sweep(model)
    left = []
    for name in repository.store.list(model):
        if not name.endswith("/") or not name[:-1].isdigit():
            continue
        version = int(name[:-1])
        if version not in announced or not repository.store.exists(f"{model}/{version}/{MANIFEST}"):
            left.append(version)
    return remove(repository, model, left)
