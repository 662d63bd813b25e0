"""Python's side of TLS: contexts for listeners and clients, made from settings and renewed when files change."""

from __future__ import annotations

import ssl
import threading
from functools import cache
from pathlib import Path

from elasticctr.config.tls import TlsSettings, called
from elasticctr.errors import ConfigError

# Of each file: modification time, size and identity; None if it does not exist.
Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp_of(*paths: Path | None) -> Stamp:
    """A value that changes when one of the files changes."""
    return tuple(_stamp(path) for path in paths if path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """For a listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: TlsSettings) -> None:
    """Loads the present certificate into a listener's context. Raises ConfigError and then changes nothing."""
    server_context(tls)  # checked first: a mismatched pair would leave the live context half changed
    _load(context, tls)


def _load(context: ssl.SSLContext, tls: TlsSettings) -> None:
    assert tls.cert is not None and tls.key is not None
    _load_pair(context, tls.cert, tls.key)
    if tls.client_ca is not None:
        _load_authority(context, tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED


def _load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as e:
        raise ConfigError(f"{cert}, {key}: not a usable certificate and key: {e}") from None


def _no_password() -> str:
    """Without this, OpenSSL asks for an encrypted key's password at the terminal."""
    return ""


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(cafile=str(path))
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"{path}: not usable as the certificates of an authority: {e}") from None


class ClientTls:
    """A client's context, shared by all clients with the same settings."""

    def __init__(self, tls: TlsSettings | None) -> None:
        self._tls = called(tls)
        self._lock = threading.Lock()
        if self._tls is None:
            self.context = ssl.create_default_context()
            return
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.check_hostname = self._tls.check_host
        self._seen = self._stamp()
        self._take_up()

    def renew(self) -> None:
        """Loads files that have changed, for new connections; unusable files change nothing."""
        if self._tls is None:
            return
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            try:
                ClientTls(self._tls)
                self._take_up()
            except ConfigError:
                return  # tried again when one of them changes

    def _take_up(self) -> None:
        assert self._tls is not None and self._tls.ca is not None
        _load_authority(self.context, self._tls.ca)
        if self._tls.cert is not None and self._tls.key is not None:
            _load_pair(self.context, self._tls.cert, self._tls.key)

    def _stamp(self) -> Stamp:
        assert self._tls is not None
        return stamp_of(self._tls.ca, self._tls.cert, self._tls.key)


@cache
def client_tls(tls: TlsSettings | None) -> ClientTls:
    """One per process and settings: reading the system's authorities takes longer than most requests."""
    return ClientTls(tls)
