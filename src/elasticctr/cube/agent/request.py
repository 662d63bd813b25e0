"""A checked prepare request: one shard of one version, and the versions it depends on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from elasticctr.cube.shared.names import MAX_SHARDS, check_digest, check_model
from elasticctr.errors import DataError
from elasticctr.versions.manifest import check_version

MAX_CHAIN = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """One version: the location of its shard's directory, the SHA-256 of the shard.json there, its identity and its
    parent's."""

    version: int
    source: str
    sha256: str | None
    identity: str | None
    parent_identity: str | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    model: str
    version: int
    shard: int | None
    shards: int | None
    steps: tuple[Step, ...]

    @property
    def key(self) -> str:
        """Equal for requests that ask for the same."""
        return json.dumps(asdict(self), sort_keys=True)

    def step(self, version: int) -> Step | None:
        return next((step for step in self.steps if step.version == version), None)


def parse_prepare(body: dict[str, Any]) -> Prepare:
    """`{"model", "version", "shard", "shards", "source", "sha256", "identity", "chain": [older versions, alike]}`."""
    shard, shards = body.get("shard"), body.get("shards")
    if (shard is None) != (shards is None):
        raise DataError("shard and shards must be given together")
    if shards is not None and not _is_shard(shard, shards):
        raise DataError(f"shard {shard!r} of {shards!r} does not exist")
    chain = body.get("chain", [])
    if not isinstance(chain, list) or len(chain) > MAX_CHAIN or not all(isinstance(one, dict) for one in chain):
        raise DataError(
            f"chain must be a list of at most {MAX_CHAIN} older versions, each with version, source and sha256"
        )
    steps = tuple(_parse_step(one) for one in [*chain, body])
    numbers = [step.version for step in steps]
    if numbers != sorted(set(numbers)):
        raise DataError("the versions of a chain must be given once each, oldest first, all before the version itself")
    return Prepare(check_model(body.get("model")), numbers[-1], shard, shards, steps)


def _parse_step(body: dict[str, Any]) -> Step:
    source = body.get("source")
    sha256, identity, below = (body.get(key) for key in ("sha256", "identity", "parent_identity"))
    if not isinstance(source, str):
        raise DataError("source must be the URL or location of a shard's directory")
    return Step(
        check_version(body.get("version")),
        source,
        None if sha256 is None else check_digest(sha256),
        None if identity is None else check_digest(identity),
        None if below is None else check_digest(below),
    )


def _is_shard(shard: object, shards: object) -> bool:
    if isinstance(shard, bool) or isinstance(shards, bool) or not isinstance(shard, int) or not isinstance(shards, int):
        return False
    return 0 <= shard < shards <= MAX_SHARDS
