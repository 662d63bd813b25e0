"""HTTPS with a certificate made here: accepted with its authority, refused without."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.certificate import make_certificate
from tests.cluster.fakes import TOKEN, Serving

from elasticctr.control.access import Tokens
from elasticctr.control.peer import Peer
from elasticctr.control.web import WebServer, get, make_app
from elasticctr.errors import ConfigError, Unavailable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_peer_talks_tls_and_checks_who_answers(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(TOKEN)), tls_cert=cert, tls_key=key)
    try:
        assert serving.url.startswith("https://")
        assert Peer(serving.url, TOKEN, tls_ca=cert).get("/v1/status") == {"a": 1}
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            Peer(serving.url, TOKEN).get("/v1/status")
        with pytest.raises(Unavailable):
            Peer(serving.url.replace("https", "http"), TOKEN).get("/v1/status")
    finally:
        serving.stop()


def test_bad_certificates_are_told(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    app = make_app([], Tokens())
    with pytest.raises(ConfigError, match="go together"):
        WebServer(app, "127.0.0.1", 0, tls_cert=cert)
    with pytest.raises(ConfigError, match="not a usable certificate"):
        WebServer(app, "127.0.0.1", 0, tls_cert=key, tls_key=cert)
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="certificates of an authority"):
        Peer("https://127.0.0.1", tls_ca=tmp_path / "empty")


def test_an_address_that_cannot_be_listened_at_is_told() -> None:
    app = make_app([], Tokens())
    first = WebServer(app, "127.0.0.1", 0)
    with pytest.raises(Unavailable, match="cannot listen"):
        WebServer(app, "127.0.0.1", first.port)
    with pytest.raises(ConfigError, match="ports go from 0 to 65535"):
        WebServer(app, "127.0.0.1", 99_999)
    with pytest.raises(ConfigError, match="cannot listen"):
        WebServer(app, "no such host", 0)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://a", "http://", "http://a:999999", "http://a:b", "http://[::"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(ConfigError):
        Peer(url)
