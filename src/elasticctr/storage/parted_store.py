"""Stores that can neither append to a file nor write conditionally: every append makes an object of its own.

`donefile.parts/000000000007-5f1c…` is the seventh line of `donefile`. Because every line has its own name, publishers
cannot overwrite each other's lines, and repeating a request changes nothing. Lines appended at the same moment are
ordered by name.
"""

from __future__ import annotations

import contextlib
import secrets
import time

from elasticctr.errors import NotFound, Unavailable
from elasticctr.storage.remote_store import RemoteStore

_PARTS = ".parts"
_TRIES = 5


class PartedStore(RemoteStore):
    def read_bytes(self, name: str) -> bytes:
        return self._read(name, self._parts(name))

    def append(self, name: str, data: bytes) -> None:
        parts = self._parts(name)
        number = int(parts[-1].rpartition("/")[2].partition("-")[0]) + 1 if parts else 1
        part = f"{name}{_PARTS}/{number:012d}-{secrets.token_hex(8)}"
        for attempt in range(_TRIES):
            try:
                self.write_bytes(part, data)
                return
            except Unavailable:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(0.1 * 2**attempt)

    def replace(self, name: str, data: bytes, expected: bytes) -> bool:
        """Keeps what is appended meanwhile. Does not notice another replace at the same time."""
        parts = self._parts(name)
        try:
            if self._read(name, parts) != expected:
                return False
        except NotFound:
            return False
        self.write_bytes(name, data)
        for part in parts:
            super().delete(part)
        return True

    def exists(self, name: str) -> bool:
        return super().exists(name) or bool(self._parts(name))

    def size(self, name: str) -> int:
        parts = self._parts(name)
        return len(self._read(name, parts)) if parts else super().size(name)

    def delete(self, name: str) -> None:
        for part in self._parts(name):
            super().delete(part)
        super().delete(name)

    def _parts(self, name: str) -> list[str]:
        return [f"{name}{_PARTS}/{part}" for part in super().list(f"{name}{_PARTS}")]

    def _read(self, name: str, parts: list[str]) -> bytes:
        pieces = []
        if not parts or super().exists(name):
            pieces.append(super().read_bytes(name))
        for part in parts:
            with contextlib.suppress(NotFound):  # replaced meanwhile
                pieces.append(super().read_bytes(part))
        return b"".join(pieces)

    def list(self, name: str = "") -> list[str]:
        entries = super().list(name)
        parted = {entry.removesuffix(f"{_PARTS}/") for entry in entries if entry.endswith(f"{_PARTS}/")}
        return sorted({entry for entry in entries if not entry.endswith(f"{_PARTS}/")} | parted)
