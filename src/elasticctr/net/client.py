"""Calls another process over HTTP: JSON in, JSON or an error of the tree out. Every call has a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from elasticctr.config.tls import TlsSettings, called
from elasticctr.errors import ConfigError, DataError, DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.net.answers import read_error
from elasticctr.net.tls import client_tls


class Peer:
    """Another process. Safe to use from several threads."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 5.0, tls: TlsSettings | None = None
    ) -> None:
        self.url = check_url(url)
        self._client = make_client(token, timeout_s=timeout_s, tls=tls)

    def get(self, path: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        return self._call("GET", path, None, timeout_s)

    def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        return self._call("POST", path, body, timeout_s)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float | None) -> dict[str, Any]:
        where = self.url + path
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            answer = self._client.request(method, where, json=body, timeout=timeout)
        except httpx.HTTPError as e:
            raise explain_failure(e, where) from None
        if answer.status_code >= 400:
            raise explain_answer(answer, where)
        try:
            value = answer.json() if answer.content else {}
        except ValueError:
            raise DataError(f"{where} did not answer with JSON; check that the address is right") from None
        if not isinstance(value, dict):
            raise DataError(f"{where} did not answer with a JSON object; check that the address is right")
        return value


def check_url(url: str) -> str:
    """`url` without a trailing slash. Raises ConfigError if it is not an http(s) address."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as e:
        raise ConfigError(f"{url!r} is not a URL: {e}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise ConfigError(f"{url!r}: expected an address such as http://127.0.0.1:8001")
    return url.rstrip("/")


def make_client(token: str | None, *, timeout_s: float, tls: TlsSettings | None = None) -> httpx.Client:
    """A client that sends its secret to nobody else: it follows no redirects and ignores proxy variables."""
    own = client_tls(called(tls))
    return httpx.Client(
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx.Timeout(timeout_s),
        verify=own.context,
        event_hooks={"request": [lambda _: own.renew()]},
        follow_redirects=False,
        trust_env=False,
    )


def explain_failure(error: httpx.HTTPError, where: str) -> ElasticCTRError:
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded(f"{where}: no answer in time")
    if isinstance(error, httpx.UnsupportedProtocol):
        return ConfigError(f"{where}: {error}")
    return Unavailable(f"{where}: not reachable: {error or type(error).__name__}{_hint(error, where)}")


def _hint(error: httpx.HTTPError, where: str) -> str:
    """What to do when only one side uses TLS, or one side refuses the other's certificate."""
    text = str(error)
    if where.startswith("http://"):
        is_cut = isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError))
        return "; if that port speaks TLS, call it with https:// and give its authority (tls ca)" if is_cut else ""
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "; that port does not speak TLS: call it with http://, or start it with --cert-file"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "; give the authority that signed its certificate (tls ca), and call it by a name in that certificate"
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text:
        return "; it requires a certificate signed by its client authority (give tls cert and key)"
    if "UNKNOWN_CA" in text:
        return "; it does not trust our certificate, which its tls client_ca did not sign"
    return ""


def explain_answer(answer: httpx.Response, where: str) -> ElasticCTRError:
    """REQUIRES: its body was read."""
    return read_error(answer.status_code, answer.content, answer.headers.get("Retry-After", ""), where)
