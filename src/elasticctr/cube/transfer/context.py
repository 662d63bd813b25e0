"""What all steps of a model's rollouts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticctr.cube.shared.names import may_be_same
from elasticctr.cube.transfer.builds import Builds
from elasticctr.cube.transfer.fleet import AgentFleet
from elasticctr.cube.transfer.instance import Holding, Instance
from elasticctr.cube.transfer.plan import make_steps, prepare_request
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import Corruption
from elasticctr.obs.watch import Watch
from elasticctr.versions.feed import Feed, Link


@dataclass(slots=True)
class Term:
    """The epoch a turn began with. If another transfer took the lease since, agents refuse this one's orders."""

    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """`root` is where agents find the builds: this transfer's URL, or a directory."""

    model: str
    settings: TransferSettings
    feed: Feed
    fleet: AgentFleet
    builds: Builds
    root: str
    term: Term = field(default_factory=Term)

    @property
    def lease(self) -> dict[str, Any]:
        """The lease that orders carry."""
        return {"owner": self.fleet.owner, "epoch": self.term.epoch}

    @property
    def is_in_charge(self) -> bool:
        return self.fleet.is_leading and self.fleet.epoch == self.term.epoch

    def links(self, version: int, identity: str) -> list[Link]:
        """A version's chain. Raises Corruption if it is not the announced one."""
        links = self.feed.chain(self.model, version)
        if links[-1].identity != identity:
            raise Corruption(f"version {version} of {self.model} is not the announced one; publish a new one")
        return links

    def steps(self, links: Sequence[Link], instances: Sequence[Instance], watch: Watch) -> list[dict[str, Any]]:
        """Builds what these replicas need of a version and returns the steps to send them."""
        return make_steps(self.model, links, instances, self.builds, self.settings.build.max_chain, watch)

    def base(self, links: Sequence[Link], watch: Watch) -> list[dict[str, Any]]:
        """The version as one base, for a replica that lacks its chain."""
        return [self.builds.ensure(self.model, links[-1], "compacted" if len(links) > 1 else "published", watch)]

    def request(self, steps: Sequence[dict[str, Any]], instance: Instance) -> dict[str, Any]:
        """The body of a prepare."""
        body = prepare_request(self.model, steps, instance, self.fleet.shards, self.root)
        return {**body, "lease": self.lease}

    def order(self, version: int, identity: str | None = None) -> dict[str, Any]:
        """The body of an activate or retire."""
        return {"model": self.model, "version": version, "identity": identity, "lease": self.lease}

    def holding(self, instance: Instance) -> Holding:
        return instance.snapshot.models.get(self.model, Holding())

    def is_current(self, instance: Instance, version: int, identity: str) -> bool:
        """Whether a replica answers from this version; the number alone could belong to other contents."""
        holding = self.holding(instance)
        if not instance.snapshot.is_usable or holding.active != version:
            return False
        found = holding.versions.get(version)
        return found is not None and may_be_same(found.identity, identity)
