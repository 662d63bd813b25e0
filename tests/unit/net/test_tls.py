"""HTTPS with a certificate made here: accepted with its authority, refused without."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

import pytest
from tests.cluster.certificate import Authority, make_certificate
from tests.cluster.fakes import TOKEN, Serving
from tests.cluster.harness import wait_until

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import ConfigError, Unavailable
from elasticctr.net import certificates as certificate_module
from elasticctr.net.access import Tokens
from elasticctr.net.client import Peer
from elasticctr.net.web import WebServer, get, make_app


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_peer_talks_tls_and_checks_who_answers(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(TOKEN)), TlsSettings(cert=cert, key=key))
    try:
        assert serving.url.startswith("https://")
        assert Peer(serving.url, TOKEN, tls=TlsSettings(ca=cert)).get("/v1/status") == {"a": 1}
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            Peer(serving.url, TOKEN).get("/v1/status")
        with pytest.raises(Unavailable):
            Peer(serving.url.replace("https", "http"), TOKEN).get("/v1/status")
    finally:
        serving.stop()


@pytest.mark.promise(
    "a caller of agent, transfer or coordinator without a certificate of its authority",
    "refused in the handshake, with a message that says what to give; plain HTTP is refused too",
)
def test_mutual_tls_refuses_strangers_and_says_why(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", "other")
    own, strange = authority.mutual("me"), other.mutual("stranger")
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(TOKEN)), authority.mutual("server"))

    def ask(tls: TlsSettings | None, url: str = serving.url) -> object:
        with Peer(url, TOKEN, tls=tls, timeout_s=30) as peer:
            return peer.get("/v1/status")

    try:
        assert ask(own) == {"a": 1}
        with pytest.raises(Unavailable, match="authority that signed its certificate"):
            ask(strange)
        with pytest.raises(Unavailable):
            ask(strange.model_copy(update={"ca": own.ca}))
        with pytest.raises(Unavailable):
            ask(TlsSettings(ca=own.ca))
        with pytest.raises(Unavailable, match="if that port speaks TLS, call it with https"):
            ask(None, serving.url.replace("https", "http"))
        elsewhere = serving.url.replace("127.0.0.1", "localhost")
        with pytest.raises(Unavailable, match="by a name in that certificate"):
            ask(own, elsewhere)
        assert ask(own.model_copy(update={"check_host": False}), elsewhere) == {"a": 1}
    finally:
        serving.stop()


def test_a_plain_port_called_by_tls_is_reported(certificate: tuple[Path, Path]) -> None:
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(TOKEN)))
    try:
        with pytest.raises(Unavailable, match="does not speak TLS"):
            Peer(serving.url.replace("http", "https"), TOKEN, tls=TlsSettings(ca=certificate[0])).get("/v1/status")
    finally:
        serving.stop()


@pytest.mark.promise(
    "a certificate expires while agent, transfer or coordinator runs",
    "listener and callers use files replaced on disk for new connections, without a restart; a mismatched pair "
    "changes nothing",
)
def test_replaced_certificates_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_module, "LOOK_S", 0.02)
    authority = Authority(tmp_path / "tls")
    tls, own = authority.mutual("server"), authority.mutual("me")
    assert tls.cert is not None and tls.key is not None and own.cert is not None
    cert = tls.cert
    serving = Serving(make_app([get("/v1/status", lambda _: {"a": 1})], Tokens(TOKEN)), tls)
    try:
        with Peer(serving.url, TOKEN, tls=own, timeout_s=30) as peer:
            assert peer.get("/v1/status") == {"a": 1}
        first, key = tls.cert.read_bytes(), tls.key.read_bytes()
        authority.issue("server")
        wait_until(lambda: _shown_by(serving, own) == cert.read_bytes(), "the new certificate")
        tls.key.write_bytes(key)  # of the old one
        time.sleep(0.2)
        assert _shown_by(serving, own) == tls.cert.read_bytes() != first
        authority.issue("server")
        wait_until(lambda: _shown_by(serving, own) == cert.read_bytes(), "the third certificate")
        own.cert.write_bytes(b"nothing")
        with Peer(serving.url, TOKEN, tls=own, timeout_s=30) as peer:
            assert peer.get("/v1/status") == {"a": 1}, "the caller keeps what it has"
        authority.issue("me")
        with Peer(serving.url, TOKEN, tls=own, timeout_s=30) as peer:
            assert peer.get("/v1/status") == {"a": 1}
    finally:
        serving.stop()


def _shown_by(serving: Serving, tls: TlsSettings) -> bytes:
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.load_cert_chain(str(tls.cert), str(tls.key))
    plain = socket.create_connection(("127.0.0.1", int(serving.url.rpartition(":")[2])), timeout=30)
    with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()


def test_bad_certificates_are_reported(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    app = make_app([], Tokens())
    with pytest.raises(ValueError, match="go together"):
        TlsSettings(cert=cert)
    with pytest.raises(ValueError, match="give a certificate and its key too"):
        TlsSettings(client_ca=cert)
    with pytest.raises(ConfigError, match="not a usable certificate"):
        WebServer(app, "127.0.0.1", 0, tls=TlsSettings(cert=key, key=cert))
    (tmp_path / "empty").write_text("")
    with pytest.raises(ConfigError, match="certificates of an authority"):
        Peer("https://127.0.0.1", tls=TlsSettings(ca=tmp_path / "empty"))


def test_an_address_that_cannot_be_listened_at_is_reported() -> None:
    app = make_app([], Tokens())
    first = WebServer(app, "127.0.0.1", 0)
    with pytest.raises(Unavailable, match="cannot listen"):
        WebServer(app, "127.0.0.1", first.port)
    with pytest.raises(ConfigError, match="ports go from 0 to 65535"):
        WebServer(app, "127.0.0.1", 99_999)
    with pytest.raises(ConfigError, match="cannot listen"):
        WebServer(app, "no such host", 0)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://a", "http://", "http://a:999999", "http://a:b", "http://[::"])
def test_an_invalid_address_is_reported(url: str) -> None:
    with pytest.raises(ConfigError):
        Peer(url)
