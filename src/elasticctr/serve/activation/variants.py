"""Divides a model's traffic between versions.

`route` turns the requested variants into what can be served now. It leaves out a variant whose version is not ready
and gives its share to the live one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticctr.config import Settings, parse_settings
from elasticctr.errors import ConfigError
from elasticctr.serve.activation.loading import Ready
from elasticctr.serve.settings import LIVE, ModelVariantSettings, check_variants


@dataclass(frozen=True, slots=True)
class Share:
    """A variant that answers, or a shadow."""

    name: str
    weight: float
    is_shadow: bool
    ready: Ready


class _VariantsRequest(Settings):
    variants: tuple[ModelVariantSettings, ...]


def parse_variants(values: Sequence[Mapping[str, Any]], models: Sequence[str]) -> tuple[ModelVariantSettings, ...]:
    """Parses variants from the API. `models` are the other models of the server."""
    variants = parse_settings(_VariantsRequest, {"variants": list(values)}, "variants").variants
    try:
        check_variants(variants)
    except ValueError as e:
        raise ConfigError(f"variants: {e}") from None
    for variant in variants:
        if variant.model is not None and variant.model not in models:
            known = ", ".join(models) or "none"
            raise ConfigError(f"variant {variant.name!r}: no other model {variant.model!r}; this server has {known}")
    return variants


def weight_of_live(variants: Sequence[ModelVariantSettings]) -> float:
    for variant in variants:
        if variant.name == LIVE:
            return variant.weight
    return max(0.0, 1.0 - sum(variant.weight for variant in variants if not variant.shadow))


def route(
    live: Ready | None, variants: Sequence[ModelVariantSettings], find: Callable[[ModelVariantSettings], Ready | None]
) -> list[Share]:
    """The shares; empty without a live version. The live one comes first, so a share keeps its users when it grows."""
    if live is None:
        return []
    own, shares = weight_of_live(variants), []
    for variant in variants:
        if variant.name == LIVE:
            continue
        ready = find(variant)
        if ready is not None:
            shares.append(Share(variant.name, variant.weight, variant.shadow, ready))
        elif not variant.shadow:
            own += variant.weight
    if own + sum(share.weight for share in shares if not share.is_shadow) <= 0:
        own = 1.0
    return [Share(LIVE, own, False, live), *shares]


def sticky_seed(model: str, variants: Sequence[ModelVariantSettings]) -> int:
    """A seed of its own, so that another experiment selects other users."""
    text = "\0".join([model, *(variant.name for variant in variants)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
