"""The strategies that work with pservers, by name."""

from __future__ import annotations

from collections.abc import Callable

from elasticctr.errors import ConfigError
from elasticctr.ps.trainer.remote import Remote
from elasticctr.ps.trainer.strategies.async_ import Async
from elasticctr.ps.trainer.strategies.geo import Geo
from elasticctr.ps.trainer.strategies.half_async import HalfAsync
from elasticctr.ps.trainer.strategies.hybrid import Hybrid
from elasticctr.ps.trainer.strategies.strategy import Strategy
from elasticctr.ps.trainer.strategies.sync import Sync
from elasticctr.train.cluster_settings import ClusterSettings

STRATEGIES: dict[str, type[Strategy]] = {
    "async": Async,
    "geo": Geo,
    "half_async": HalfAsync,
    "hybrid": Hybrid,
    "sync": Sync,
}


def make_strategy(remote: Remote, settings: ClusterSettings, rate_scale: Callable[[], float]) -> Strategy:
    """The strategy a job asks for. `rate_scale` says by what the learning rates of the next push are multiplied."""
    cls = STRATEGIES.get(settings.strategy)
    if cls is None:
        raise ConfigError(f"strategy {settings.strategy!r} has no pservers; it is run by its own launcher")
    return cls(remote, settings, rate_scale)
