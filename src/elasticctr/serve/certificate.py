"""New certificates without a restart: the files of `tls` are looked at now and then, and servers take up what changed.

    certificate = Certificate(settings.tls, [server.reload_tls, grpc_server.reload_tls])
    certificate.look()

Connections that are open keep the certificate they have. Files that cannot be used (a key that does not belong to the
certificate yet, say) are warned about and tried again when one of them has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from elasticctr.errors import ElasticCTRError
from elasticctr.obs import console
from elasticctr.serve.settings import TlsSettings

# Of each file: when it was written, its size and which file it is; None: it is not there.
_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificate:
    """What servers have of the files. `reloads` are called in order; where one raises, those after it are not."""

    def __init__(self, tls: TlsSettings, reloads: Sequence[Callable[[], None]]) -> None:
        self._paths = [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None]
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
        console.note(f"new connections get the certificate that {self._paths[0]} holds now")

    def _stamp(self) -> _Stamp:
        return tuple(_stamp_of(path) for path in self._paths)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
