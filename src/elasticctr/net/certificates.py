"""New certificates without a restart: the files of `tls` are looked at now and then, and servers take up what changed.

    with watched(settings.tls, [server.reload_tls, grpc_server.reload_tls]):
        ...

Connections that are open keep the certificate they have. Files that cannot be used (a key that does not belong to the
certificate yet, say) are warned about and tried again when one of them has changed.
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
    """What servers have of the files. `reloads` are called in order; where one raises, those after it are not."""

    def __init__(self, tls: TlsSettings, reloads: Sequence[Callable[[], None]]) -> None:
        self._tls = tls
        self._reloads = reloads
        self._seen = self._stamp()

    def look(self, *, now: bool = False) -> None:
        """Takes up the files if they changed, or with `now` in any case."""
        # Taken before they are read, so that what is written meanwhile is seen next time.
        stamp = self._stamp()
        if stamp == self._seen and not now:
            return
        self._seen = stamp
        try:
            for reload in self._reloads:
                reload()
        except ElasticCTRError as e:
            console.warn(f"the certificate stays as it is: {e}")
            return
        console.note(f"new connections get the certificate that {self._tls.cert} holds now")

    def _stamp(self) -> Stamp:
        return stamp_of(self._tls.cert, self._tls.key, self._tls.client_ca)


@contextmanager
def watched(tls: TlsSettings | None, reloads: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Looks at the files from a thread of its own; does nothing where no port speaks TLS."""
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
