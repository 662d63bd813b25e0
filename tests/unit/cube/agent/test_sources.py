"""An agent fetches only from the places it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.cube.agent.sources import AllowedSources, HttpSource
from elasticctr.errors import ConfigError, DataError, Unauthorized
from elasticctr.net.client import make_client


def allowed(*places: str) -> AllowedSources:
    return AllowedSources(places, make_client(None, timeout_s=1))


def test_loopback_is_the_default_and_nothing_else() -> None:
    allowed().open("http://127.0.0.1:8099/v1/files")
    allowed().open("https://localhost/x")
    for source in ("http://10.0.0.1/x", "http://127.0.0.1.evil.com/x", "/var/builds", "s3://bucket/x"):
        with pytest.raises(Unauthorized):
            allowed().open(source)


def test_a_named_host_is_scheme_host_port_and_path() -> None:
    sources = allowed("http://transfer:8099/v1/files")
    sources.open("http://transfer:8099/v1/files/published/ctr/1/shard-0000-of-0002")
    for source in (
        "http://transfer:8099/v1/filesystem",
        "http://transfer:8098/v1/files/x",
        "https://transfer:8099/v1/files/x",
        "http://127.0.0.1:8099/v1/files/x",
        "http://transfer:8099/v1",
    ):
        with pytest.raises(Unauthorized):
            sources.open(source)


@pytest.mark.parametrize(
    "source",
    [
        "http://transfer/v1/files/../../secret",
        "http://transfer/v1/files/%2e%2e/secret",
        "http://transfer@evil/v1/files",
        "http://transfer/v1/files?x=1",
        "http://transfer/v1/files#x",
        "http://transfer:99999/v1/files",
        "http://",
        "gopher://transfer/x",
        "relative/path",
        "/builds/../etc",
        "/builds/*",
        "",
        7,
    ],
)
def test_what_is_no_plain_source_is_refused(source: object) -> None:
    with pytest.raises(DataError):
        allowed("http://transfer/v1/files", "/builds").open(source)


def test_a_symlink_does_not_lead_out_of_an_allowed_directory(tmp_path: Path) -> None:
    (tmp_path / "builds").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "builds/way-out").symlink_to(tmp_path / "secret")
    sources = allowed(str(tmp_path / "builds"))
    sources.open(str(tmp_path / "builds/ctr"))
    with pytest.raises(Unauthorized):
        sources.open(str(tmp_path / "builds/way-out"))


def test_an_empty_permission_is_a_mistake() -> None:
    with pytest.raises(ConfigError):
        allowed(" ")


@pytest.mark.promise(
    "An agent fetches from an allowed source other than its transfer",
    "the fleet's secret is sent only to the transfer that holds the lease and to named peers",
)
def test_the_secret_is_shown_to_those_who_share_it_alone() -> None:
    plain, trusted = make_client(None, timeout_s=1), make_client("secret of the fleet", timeout_s=1)
    places = ["http://10.0.0.1:8099", "http://10.0.0.2"]
    sources = AllowedSources(places, plain, trusted, lambda: ("", "http://10.0.0.1:8099"))

    def client_of(source: str) -> object:
        opened = sources.open(source)
        assert isinstance(opened, HttpSource)
        return opened._client

    assert client_of("http://10.0.0.1:8099/v1/files/x") is trusted
    assert client_of("http://10.0.0.2/x") is plain
    with pytest.raises(Unauthorized):
        sources.open("http://10.0.0.1:8098/v1/files/x")
