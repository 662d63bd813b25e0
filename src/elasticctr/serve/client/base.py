"""What a prediction client is made of, whichever way it waits."""

from __future__ import annotations

from collections.abc import Iterable

from elasticctr.serve.client.connection import make_tls
from elasticctr.serve.client.routing import Router
from elasticctr.serve.client.settings import (
    Balancer,
    EndpointSettings,
    PredictClientSettings,
    VariantSettings,
    make_settings,
)


class BaseClient:
    def __init__(
        self,
        endpoints: str | Iterable[str | EndpointSettings] | PredictClientSettings = (),
        *,
        variants: Iterable[VariantSettings] = (),
        model: str | None = None,
        sticky: str | None = None,
        balancer: Balancer | None = None,
        timeout_s: float | None = None,
        connect_s: float | None = None,
        retries: int | None = None,
        hedge_s: float | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Endpoints that answer alike, or variants, or ready settings, which the rest goes before."""
        self.settings = make_settings(
            endpoints,
            variants,
            {
                "model": model,
                "sticky": sticky,
                "balancer": balancer,
                "timeout_ms": None if timeout_s is None else timeout_s * 1000,
                "connect_ms": None if connect_s is None else connect_s * 1000,
                "retries": retries,
                "hedge_ms": None if hedge_s is None else hedge_s * 1000,
                "token": token,
                "ca_file": ca_file,
                "cert_file": cert_file,
                "key_file": key_file,
            },
        )
        self._router = Router(self.settings)
        uses_tls = any(e.address.is_tls for v in self._router.variants for e in v.endpoints)
        self._tls = make_tls(self.settings) if uses_tls else None
        self._is_closed = False
