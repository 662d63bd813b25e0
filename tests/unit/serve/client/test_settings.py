"""The client's settings and URLs, and mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from elasticctr.errors import ConfigError, NotFound
from elasticctr.serve.client import EndpointSettings, PredictClient, PredictClientSettings, VariantSettings
from elasticctr.serve.client.settings import Address, make_settings, parse_url

ONE = (VariantSettings("a", (EndpointSettings("localhost:1"),)),)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("10.0.0.1", Address("10.0.0.1", 8500, False, "")),
        ("host:81", Address("host", 81, False, "")),
        ("http://host", Address("host", 80, False, "")),
        ("https://host/predict/", Address("host", 443, True, "/predict")),
        ("http://[::1]:8500", Address("::1", 8500, False, "")),
    ],
)
def test_url(url: str, address: Address) -> None:
    assert parse_url(url) == address


def test_authority() -> None:
    assert parse_url("http://[::1]:8500").authority == "[::1]:8500"


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://h:99999", "http://h/?q", "http://h/a b", "h\r\n:1"])
def test_bad_url(url: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        EndpointSettings(url)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"variants": ()}, "needs an endpoint"),
        ({"variants": ONE + ONE}, "must have different names"),
        ({"balancer": "best"}, "balancer must be one of"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"retries": 64}, "retries"),
        ({"retries": -1}, "retries"),
        ({"hedge_ms": float("nan")}, "hedge_ms"),
        ({"token": "a\nb"}, "token"),
    ],
)
def test_bad_settings(named: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PredictClientSettings(**{"variants": ONE, **named})


def test_bad_weights() -> None:
    with pytest.raises(ConfigError, match="weight"):
        EndpointSettings("h:1", -1)
    with pytest.raises(ConfigError, match="every endpoint has weight 0"):
        VariantSettings("a", (EndpointSettings("h:1", 0),))
    with pytest.raises(ConfigError, match="no endpoints"):
        VariantSettings("a", ())


def test_ca_file_must_exist() -> None:
    with pytest.raises(NotFound, match="ca_file"):
        PredictClientSettings(variants=ONE, ca_file="/nowhere/ca.pem")


def test_arguments_go_before_settings() -> None:
    settings = make_settings(
        PredictClientSettings(variants=ONE, model="a", retries=5), (), {"model": "b", "retries": None}
    )
    assert (settings.model, settings.retries, settings.variants) == ("b", 5, ONE)


def test_endpoints_and_variants_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="not both"):
        PredictClient("h:1", variants=ONE)
