"""Checks requests before a control server's routes: the token, the page they come from, and how many run at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from elasticctr import _native
from elasticctr.errors import ElasticCTRError, Unauthorized, Unavailable
from elasticctr.net.access import READ_ONLY, Tokens

MAX_REQUESTS = 512  # in progress; refused requests do not count
_OPEN_PATHS = {"/healthz"}
_READS = ("GET", "HEAD")
_BEARER = "Bearer "

Refuse = Callable[[ElasticCTRError, int | None], ASGIApp]


class AccessGate:
    """Passes requests to `app`. `refuse` makes the answer to refused ones, with the error's status or another."""

    def __init__(self, app: ASGIApp, tokens: Tokens, refuse: Refuse, max_requests: int = MAX_REQUESTS) -> None:
        self._app = app
        self._tokens = tokens
        self._refuse = refuse
        self._left = max_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._check(scope)
        if refusal is not None:
            await self._refuse(*refusal)(scope, receive, send)
        elif scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    def _pass(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._left <= 0:
            busy = Unavailable("too many requests are in progress; try again", retry_after_s=1)
            return self._refuse(busy, None)(scope, receive, send)
        return self._count(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._left -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._left += 1

    def _check(self, scope: Scope) -> tuple[ElasticCTRError, int | None] | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self._tokens:
            return _check_site(scope, headers)
        if scope["path"] in _OPEN_PATHS:
            return None
        given = headers.get(b"authorization", "")
        allowed = self._tokens.scope_of(given.removeprefix(_BEARER)) if given.startswith(_BEARER) else None
        if allowed == "admin" or (allowed == "read" and scope["method"] in _READS):
            return None
        if allowed == "read":
            return Unauthorized(READ_ONLY), 403
        return Unauthorized("missing or wrong token; send 'Authorization: Bearer TOKEN' with the file's token"), None


def _check_site(scope: Scope, headers: dict[bytes, str]) -> tuple[ElasticCTRError, int | None] | None:
    refusal = _native.check_site(
        method=scope["method"],
        host=headers.get(b"host", ""),
        origin=headers.get(b"origin", ""),
        content_type=headers.get(b"content-type", ""),
        own_host=(scope.get("server") or ("",))[0],
    )
    if refusal is None:
        return None
    status, why = refusal
    return Unauthorized(why), status
