"""Fetches files: resumable, limited to a rate, hashed while read; a file gets its name only when complete.

A broken transfer resumes at the byte it reached; a file that arrives damaged is fetched again from the start, a few
times. Names, sizes and digests come from a listing whose own digest was checked.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from elasticctr.cube.agent.sources import ShardSource
from elasticctr.cube.shared.listing import MAX_LISTING_BYTES, CubeFile
from elasticctr.errors import Corruption, DeadlineExceeded, Unavailable
from elasticctr.obs.watch import Watch
from elasticctr.storage.atomic import explain_write

_READ_BYTES = 1 << 20
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class RateLimit:
    """Limits the bytes per second of all downloads of a process. Bursts may last a tenth of a second."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def take(self, count: int, pause: Callable[[float], None]) -> None:
        if self._bytes_per_s is None:
            return
        with self._lock:
            now_s = time.monotonic()
            self._free_at_s = max(self._free_at_s, now_s - 0.1) + count / self._bytes_per_s
            wait_s = self._free_at_s - now_s
        if wait_s > 0:
            pause(wait_s)


class Fetcher:
    def __init__(self, rate: RateLimit, *, attempts: int = 5, refetches: int = 2) -> None:
        self._rate = rate
        self._attempts = attempts
        self._refetches = refetches
        self.bytes_fetched = 0
        self.refetched = 0

    def fetch_listing(self, source: ShardSource, name: str, sha256: str | None, watch: Watch) -> bytes:
        """A small file, in memory. Raises Corruption if its digest is not `sha256`."""

        def read() -> bytes:
            data = b""
            with source.open(name, 0) as (_, chunks):
                for chunk in chunks:
                    data += chunk
                    if len(data) > MAX_LISTING_BYTES:
                        raise Corruption(f"{name}: more than {MAX_LISTING_BYTES} bytes, too large for a listing")
            return data

        for _ in range(self._refetches + 1):
            data: bytes = self._persist(read, watch, lambda: 0)
            if sha256 is None or hashlib.sha256(data).hexdigest() == sha256:
                return data
            self.refetched += 1
        raise Corruption(f"{name}: the source has another one than announced: its SHA-256 differs")

    def fetch_file(self, source: ShardSource, file: CubeFile, directory: Path, watch: Watch) -> None:
        """Puts one file into `directory`. Raises Corruption if it keeps arriving damaged."""
        part = directory / f"{file.name}.part"
        damage = "its SHA-256 is not the listed one"
        for _ in range(self._refetches + 1):
            try:
                if self._fetch_part(source, file, part, watch) == file.sha256:
                    part.replace(directory / file.name)
                    return
            except Corruption as e:
                damage = str(e)
            self.refetched += 1
            watch.bytes_done -= _size(part)
            part.unlink(missing_ok=True)
        raise Corruption(f"{file.name}: arrived damaged {self._refetches + 1} times: {damage}; build it again")

    def _fetch_part(self, source: ShardSource, file: CubeFile, part: Path, watch: Watch) -> str:
        """Fills `part` to the listed size, keeping what it already holds. Returns its SHA-256."""
        try:
            with part.open("a+b") as out:
                digest = _hash_start(out, file.size)
                watch.bytes_done += out.tell()
                while out.tell() < file.size:
                    self._persist(lambda: self._stream(source, file, out, digest, watch), watch, out.tell)
                os.fsync(out.fileno())
                return str(digest.hexdigest())
        except OSError as e:
            raise explain_write(e, part) from None

    def _stream(self, source: ShardSource, file: CubeFile, out: IO[bytes], digest: Any, watch: Watch) -> None:
        with source.open(file.name, out.tell()) as (start, chunks):
            # A source that cannot start in the middle sends again what is already here.
            skip = out.tell() - start
            for chunk in chunks:
                watch.check()
                taken = chunk[skip:]
                skip = max(0, skip - len(chunk))
                if out.tell() + len(taken) > file.size:
                    raise Corruption(f"{file.name}: the source has more than the {file.size} bytes listed")
                self._rate.take(len(chunk), watch.pause)
                out.write(taken)
                digest.update(taken)
                watch.bytes_done += len(taken)
                self.bytes_fetched += len(chunk)
        if out.tell() < file.size:
            raise Corruption(f"{file.name}: the source has only {out.tell()} of the {file.size} bytes listed")

    def _persist(self, work: Callable[[], Any], watch: Watch, reached: Callable[[], int]) -> Any:
        """Does `work`, retrying temporary failures after growing pauses; progress resets the count."""
        failures, before = 0, reached()
        while True:
            watch.check()
            try:
                return work()
            except (Unavailable, DeadlineExceeded) as e:
                watch.check()
                failures = 1 if reached() > before else failures + 1
                before = reached()
                if failures >= self._attempts:
                    raise
                pause_s = min(_FIRST_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S)
                watch.pause(getattr(e, "retry_after_s", None) or pause_s)


def _hash_start(out: IO[bytes], size: int) -> Any:
    """SHA-256 of what a part holds; empties one longer than the file. Leaves the position at its end."""
    digest = hashlib.sha256()
    if out.seek(0, os.SEEK_END) > size:
        out.truncate(0)
    out.seek(0)
    while data := out.read(_READ_BYTES):
        digest.update(data)
    out.seek(0, os.SEEK_END)
    return digest


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
