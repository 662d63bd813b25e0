"""`tls` of settings files and --cert-file, --key-file, --client-ca-file, --ca-file of commands: one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from elasticctr.config.settings import Settings

PATHS = ("cert", "key", "client_ca", "ca")


class TlsSettings(Settings):
    """Certificates of a process: for the connections it accepts and for those it opens."""

    cert: Path | None = Field(
        None, description="certificate chain (PEM) of this process: to listen with, and to show to servers it calls"
    )
    key: Path | None = Field(None, description="its private key (PEM), not encrypted")
    client_ca: Path | None = Field(None, description="authority (PEM) that clients' certificates must be signed by")
    ca: Path | None = Field(
        None, description="authority (PEM) of the servers that this process calls; if given, they are called over TLS"
    )
    check_host: bool = Field(
        True, description="whether a server's certificate must name the host or address that is called"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("a certificate and its key go together: give both or neither")
        if self.client_ca is not None and self.cert is None:
            raise ValueError("client_ca is for a port that speaks TLS: give a certificate and its key too")
        return self

    def server_files(self) -> dict[str, str]:
        """The arguments of a native server."""
        return {"tls_cert": _text(self.cert), "tls_key": _text(self.key), "tls_client_ca": _text(self.client_ca)}

    def client_files(self) -> dict[str, Any]:
        """The arguments of a native client, which uses TLS if an authority is given."""
        if self.ca is None:
            return {}
        return {
            "tls_ca": _text(self.ca),
            "tls_cert": _text(self.cert),
            "tls_key": _text(self.key),
            "tls_check_host": self.check_host,
        }


def served(tls: TlsSettings | None) -> TlsSettings | None:
    """The settings of a listening port; None if there are none, or only some for calling others."""
    return tls if tls is not None and tls.cert is not None else None


def called(tls: TlsSettings | None) -> TlsSettings | None:
    """The settings for calling others; None if there are none, or only a certificate to listen with."""
    return tls if tls is not None and tls.ca is not None else None


def wants_clients(tls: TlsSettings | None) -> bool:
    """Whether clients must show a certificate that our authority signed."""
    return tls is not None and tls.client_ca is not None


def anchor(tls: Any, directory: Path) -> Any:
    """The section with its paths relative to `directory` resolved. Any other value is returned unchanged."""
    if not isinstance(tls, dict):
        return tls
    return tls | {key: str(directory / tls[key]) for key in PATHS if isinstance(tls.get(key), str)}


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
