"""Chooses the builds to send for a version, given what replicas hold: as few as possible, never a chain with a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticctr.cube.shared.names import shard_directory
from elasticctr.cube.transfer.builds import Builds, Form
from elasticctr.cube.transfer.instance import Holding, Instance
from elasticctr.obs.watch import Watch
from elasticctr.versions.feed import Link


def choose_forms(
    links: Sequence[Link], holdings: Sequence[Holding], built: set[int], max_chain: int
) -> list[tuple[Link, Form]]:
    """The builds to send, oldest first; empty if every replica already holds the version.

    `links` is the version's chain, base first; `built` lists the versions whose own build is on disk.
    """
    floor = -1  # the newest link that all of them hold with its chain
    for position, link in enumerate(links):
        if all(holding.has_whole(link.version, link.identity) for holding in holdings):
            floor = position
    missing = links[floor + 1 :]
    if not missing:
        return [] if holdings else [(links[-1], "published" if len(links) == 1 else "compacted")]
    identities = {link.version: link.identity for link in missing[:-1]}
    if any(one.has_active_other_than(identities) for one in holdings):
        # The active version has a number of the chain but other contents, so it cannot be replaced link by link.
        return [(links[-1], "compacted")]
    deltas = len(missing) - 1 if floor < 0 else len(missing) + max(one.depth(links[floor].version) for one in holdings)
    is_unbuilt = floor < 0 and not all(link.version in built for link in links)
    if len(links) > 1 and (deltas > max_chain or is_unbuilt):
        # Too many deltas, or no replica has what they depend on: send one base instead.
        return [(links[-1], "compacted")]
    return [(link, "published") for link in missing]


def make_steps(
    model: str, links: Sequence[Link], instances: Sequence[Instance], builds: Builds, max_chain: int, watch: Watch
) -> list[dict[str, Any]]:
    """Builds what these replicas need and returns the steps to send. Never empty: the last one is the version."""
    holdings = [instance.snapshot.models.get(model, Holding()) for instance in instances]
    built = {link.version for link in links if builds.find(model, link, "published") is not None}
    forms = choose_forms(links, holdings, built, max_chain)
    if not forms:
        last = links[-1]
        held = {"version": last.version, "form": "published", "kind": "held", "sha256": None}
        return [{**held, "identity": last.identity, "parent_identity": None}]
    return [builds.ensure(model, link, form, watch) for link, form in forms]


def prepare_request(
    model: str, steps: Sequence[dict[str, Any]], instance: Instance, shards: int, root: str
) -> dict[str, Any]:
    """The body of POST /v1/prepare for one replica. `root` is where agents find the builds."""

    def told(step: dict[str, Any]) -> dict[str, Any]:
        folder = shard_directory(instance.shard, shards)
        digests = step["sha256"]
        return {
            "version": step["version"],
            "source": f"{root}/{step['form']}/{model}/{step['version']}/{folder}",
            "sha256": None if digests is None else digests[instance.shard],
            "identity": step["identity"],
            "parent_identity": step.get("parent_identity"),
        }

    older = [told(step) for step in steps[:-1]]
    return {"model": model, "shard": instance.shard, "shards": shards, **told(steps[-1]), "chain": older}
