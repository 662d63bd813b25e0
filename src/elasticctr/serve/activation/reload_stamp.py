"""`reloadable_meta`: a file that is touched to announce something new to serve.

    stamp = ReloadStamp(Path("data/fluid_time_file"), "timestamp_ne", last=state.reload_stamp)
    if stamp.changed():
        ...                                   # read the donefile now, and remember stamp.last

timestamp_ne: its modification time differs. timestamp_gt: it is later. md5sum: its bytes differ.
revision: the whole number it begins with is larger. none: never. A file that is missing or cannot be read has not
changed.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

ReloadType = Literal["timestamp_ne", "timestamp_gt", "md5sum", "revision", "none"]

_REVISION = re.compile(rb"\s*(\d{1,19})(?:\s|$)")
_CHUNK_BYTES = 1 << 20


class ReloadStamp:
    """`last` is the file's last stamp, which may be kept across restarts; empty: none yet."""

    def __init__(self, path: Path, kind: ReloadType, last: str = "") -> None:
        self.path = path
        self.kind = kind
        # A stamp of another kind cannot be compared.
        self.last = last if last.partition(":")[0] == kind else ""
        self._seen: tuple[int, int, int] | None = None
        self._read = ""

    def changed(self) -> bool:
        """Whether it changed since the last call, or since `last`. Without either, the first call returns False."""
        now = self._look()
        if not now or now == self.last:
            return False
        is_first = not self.last
        if not is_first and not self._is_change(now):
            return False
        self.last = now
        return not is_first

    def _is_change(self, now: str) -> bool:
        if self.kind in ("timestamp_ne", "md5sum"):
            return True
        return int(now.partition(":")[2]) > int(self.last.partition(":")[2])

    def _look(self) -> str:
        if self.kind == "none":
            return ""
        try:
            found = self.path.stat()
            if self.kind in ("timestamp_ne", "timestamp_gt"):
                return f"{self.kind}:{found.st_mtime_ns}"
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._read = self._content()
                self._seen = seen
            return self._read
        except OSError:
            return ""

    def _content(self) -> str:
        with self.path.open("rb") as file:
            if self.kind == "revision":
                number = _REVISION.match(file.read(64))
                return f"revision:{int(number[1])}" if number else ""
            digest = hashlib.md5(usedforsecurity=False)
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            return f"md5sum:{digest.hexdigest()}"
