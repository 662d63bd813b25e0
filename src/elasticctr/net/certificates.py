"""New certificates without a restart: the files of `tls` are checked now and then, and servers load those that changed.

    with watched(settings.tls, [server.reload_tls, grpc_server.reload_tls]):
        ...

Open connections keep their certificate. Files that cannot be used, such as a key that does not yet belong to the
certificate, cause a warning and are tried again when one of them changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from elasticctr.config.tls import TlsSettings, served
from elasticctr.errors import ElasticCTRError
from elasticctr.net.tls import Stamp, stamp_of
from elasticctr.obs import console

LOOK_S = 2.0


class Certificate:
    """The certificate that servers use now. `reloads` are called in order; if one raises, the rest are not called."""

    def __init__(self, tls: TlsSettings, reloads: Sequence[Callable[[], None]]) -> None:
        self._tls = tls
        self._reloads = reloads
        self._seen = self._stamp()

    def look(self, *, now: bool = False) -> None:
        """Reloads the files if they changed, or with `now` in any case."""
        # Taken before reading, so that a change during the read is noticed next time.
        stamp = self._stamp()
        if stamp == self._seen and not now:
            return
        self._seen = stamp
        try:
            for reload in self._reloads:
                reload()
        except ElasticCTRError as e:
            console.warn(f"the current certificate stays in use: {e}")
            return
        console.note(f"new connections use the certificate now in {self._tls.cert}")

    def _stamp(self) -> Stamp:
        return stamp_of(self._tls.cert, self._tls.key, self._tls.client_ca)


@contextmanager
def watched(tls: TlsSettings | None, reloads: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Checks the files from a thread of its own; does nothing if no port uses TLS."""
    if served(tls) is None:
        yield
        return
    assert tls is not None
    certificate = Certificate(tls, reloads)
    over = threading.Event()

    def run() -> None:
        while not over.wait(LOOK_S):
            certificate.look()

    thread = threading.Thread(target=run, name="certificate", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)
