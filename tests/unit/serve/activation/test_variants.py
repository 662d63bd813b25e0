"""Shares of variants, with any of them ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elasticctr.cli.serve.serving import parse_variant
from elasticctr.errors import ConfigError
from elasticctr.serve.activation.variants import route, sticky_seed
from elasticctr.serve.settings import ModelVariantSettings

LIVE: Any = SimpleNamespace(version=1)
READY: dict[int, Any] = {2: SimpleNamespace(version=2)}


def _shares(*variants: dict[str, Any], live: Any = LIVE) -> dict[str, Any]:
    parsed = [ModelVariantSettings.model_validate(one) for one in variants]
    shares = route(live, parsed, lambda variant: READY.get(variant.version or 0))
    return {share.name: (pytest.approx(share.weight), share.ready.version) for share in shares}


def test_the_live_version_has_what_others_leave() -> None:
    assert _shares() == {"live": (1.0, 1)}
    assert _shares({"name": "b", "version": 2, "weight": 0.1}) == {"live": (0.9, 1), "b": (0.1, 2)}
    assert _shares({"name": "live", "weight": 3}, {"name": "b", "version": 2, "weight": 1}) == {
        "live": (3, 1),
        "b": (1, 2),
    }


def test_a_shadow_takes_nothing_and_one_that_is_not_ready_gives_back() -> None:
    assert _shares({"name": "s", "version": 2, "weight": 1, "shadow": True})["live"] == (1.0, 1)
    assert _shares({"name": "b", "version": 3, "weight": 1.0}) == {"live": (1.0, 1)}
    none_left = _shares({"name": "live", "weight": 0}, {"name": "b", "version": 3, "weight": 0.5})
    assert none_left == {"live": (0.5, 1)}, "somebody answers"


def test_without_a_live_version_there_is_no_answer() -> None:
    assert _shares({"name": "b", "version": 2, "weight": 0.1}, live=None) == {}


def test_another_experiment_draws_other_users() -> None:
    b, c = (ModelVariantSettings(name=name, version=2) for name in "bc")
    assert sticky_seed("ctr", [b]) == sticky_seed("ctr", [b])
    assert len({sticky_seed("ctr", [b]), sticky_seed("ctr", [c]), sticky_seed("other", [b])}) == 3


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("b=8", {"name": "b", "version": 8}),
        ("b=8:0.1", {"name": "b", "version": 8, "weight": 0.1}),
        ("b=8:0.1:shadow", {"name": "b", "version": 8, "weight": 0.1, "shadow": True}),
        ("w=wide:0.5", {"name": "w", "model": "wide", "weight": 0.5}),
        ("live=3", {"name": "live", "weight": 3.0}),
    ],
)
def test_variants_on_the_command_line(text: str, parsed: dict[str, Any]) -> None:
    assert parse_variant(text) == parsed


@pytest.mark.parametrize("text", ["", "b", "b=", "=8", "b=8:", "b=8:x", "b=8:0.1:light", "live="])
def test_an_invalid_variant_is_reported(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=VERSION"):
        parse_variant(text)
