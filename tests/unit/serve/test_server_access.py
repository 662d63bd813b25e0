"""Who may ask a prediction server: tokens, other sites' pages, TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from tests.cluster.certificate import make_certificate
from tests.unit.serve.live import Live, live_server

from elasticctr.errors import ConfigError
from elasticctr.net.access import Tokens
from elasticctr.serve.server import PredictServer, PredictServerOptions


def test_a_token_guards_everything_but_health(tmp_path: Path) -> None:
    with live_server(tmp_path, tokens=Tokens("a secret")) as live:
        for given in ({}, {"Authorization": "Bearer b secret"}, {"Authorization": "Basic a secret"}):
            for path in ("/v1/status", "/metrics", "/v1/models/ctr:predict", "/openapi.json"):
                answer = live.get(path, **given)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert live.get("/healthz").status_code == live.get("/readyz").status_code == 200
        good = {"Authorization": "Bearer a secret"}
        assert live.get("/v1/status", **good).status_code == 200
        assert live.post({"samples": [{}]}, **good).status_code == 200


@pytest.mark.promise(
    "a prediction client's token used to activate, roll back or change variants",
    "a read token predicts and sees status; commands are refused with 403",
)
def test_a_read_token_predicts_and_commands_nothing(tmp_path: Path) -> None:
    with live_server(tmp_path, tokens=Tokens("the token of admins", "the token of readers")) as live:
        reader, admin = ({"Authorization": f"Bearer the token of {who}"} for who in ("readers", "admins"))
        assert live.post({"samples": [{}]}, **reader).status_code == 200
        for path in ("/v1/status", "/metrics", "/v1/models/ctr", "/v2/models/ctr", "/openapi.json"):
            assert live.get(path, **reader).status_code == 200, path
        assert live.client.post("/v2/repository/index", json={}, headers=reader).status_code == 200
        for action in ("activate", "rollback", "pause", "resume", "variants", "promote"):
            refused = live.client.post(f"/v1/models/ctr:{action}", json={}, headers=reader)
            assert refused.status_code == 403 and "may only read" in refused.text
        assert live.client.post("/v1/models/ctr:pause", json={}, headers=admin).status_code == 200
        assert live.server.native.matches("the token of readers")


@pytest.mark.promise(
    "a web page that has a browser command a prediction server without a token",
    "foreign Origin and Host, and forms, are refused",
)
def test_pages_of_other_sites_are_refused(live: Live) -> None:
    body = b'{"samples": [{}]}'
    for path in ("/v1/models/ctr:predict", "/v1/models/ctr:rollback", "/v2/models/ctr/infer"):
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Host": "evil.example:8500"}, 403),
            ({"Content-Type": "text/plain;charset=UTF-8"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ):
            assert live.client.post(path, content=body, headers=headers).status_code == status, (path, headers)
    for headers in (
        {},
        {"Origin": "http://localhost:3000"},
        {"Host": "localhost"},
        {"Content-Type": "application/json"},
    ):
        assert live.client.post("/v1/models/ctr:predict", content=body, headers=headers).status_code == 200, headers
    for path in ("/v1/status", "/healthz"):
        assert live.get(path, Host="rebound.example").status_code == 403


def test_tls_and_client_certificates(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    cert, key = make_certificate(ours)
    client_cert, client_key = make_certificate(theirs)
    trusting = ssl.create_default_context(cafile=str(cert))
    with live_server(tmp_path, tls_cert=cert, tls_key=key) as live:
        with httpx.Client(base_url=live.url, verify=trusting, timeout=60) as client:
            answer = client.post("/v1/models/ctr:predict", json={"samples": [{"user": "a" * 300_000}] * 2})
            assert answer.status_code == 200 and len(answer.json()["scores"]) == 2
            assert len(client.get("/openapi.json").content) > 20_000
        plain = httpx.get(f"http://127.0.0.1:{live.server.port}/healthz", timeout=60)
        assert plain.status_code == 400 and "https" in plain.text
    with live_server(tmp_path / "b", tls_cert=cert, tls_key=key, tls_client_ca=client_cert) as live:
        with (
            pytest.raises(httpx.TransportError),
            httpx.Client(base_url=live.url, verify=trusting, timeout=60) as client,
        ):
            client.get("/healthz")
        known = ssl.create_default_context(cafile=str(cert))
        known.load_cert_chain(client_cert, client_key)
        assert httpx.get(live.url + "/healthz", verify=known, timeout=60).status_code == 200


def test_tls_that_cannot_work_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, key = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path / "other")
    none = tmp_path / "none.pem"
    for certificate, private in ((cert, other), (none, key), (cert, none), (key, key)):
        with pytest.raises(ConfigError, match="TLS"):
            PredictServer(PredictServerOptions(port=0, tls_cert=certificate, tls_key=private))
    with pytest.raises(ConfigError, match="key"):
        PredictServer(PredictServerOptions(port=0, tls_cert=cert))
