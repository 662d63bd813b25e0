"""One coordinator per run: a claim in the run directory, renewed while it lives.

Each claim has an incarnation, one above the last. A second coordinator watches the first one's claim: if it is renewed
the second is refused; if it does not change, or its process is gone from this machine, it is taken over. A coordinator
that was stopped and wakes up after that finds a higher incarnation and ends. pservers obey the highest they know.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from elasticctr.errors import AlreadyExists, Corruption, ElasticCTRError, FailedPrecondition, NotFound
from elasticctr.storage.atomic import read_json, write_json

RENEW_S = 0.5
SILENT_S = 5.0
_FILE = "claim.json"


class Claim:
    """Held from construction to `release`."""

    def __init__(self, directory: Path, *, silent_s: float | None = None) -> None:
        """Raises AlreadyExists if another coordinator is at work."""
        self._directory = directory
        self._path = directory / _FILE
        self._key = secrets.token_hex(8)
        self._beats = 0
        silent_s = SILENT_S if silent_s is None else silent_s
        directory.mkdir(parents=True, exist_ok=True)
        before = _read(self._path)
        if before is not None and not before.get("is_released"):
            _await_silence(self._path, before, silent_s)
            before = _read(self._path)
        self.incarnation = self._number(0 if before is None else int(before.get("incarnation", 0)) + 1, silent_s)
        self._renew()
        self._lost = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="elasticctr-claim", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def check(self) -> None:
        """Raises FailedPrecondition if another coordinator has taken over."""
        found = _read(self._path)
        if self._lost.is_set() or (found is not None and found.get("key") != self._key):
            self._lost.set()
            raise FailedPrecondition(
                f"{self._path}: another coordinator (incarnation {(found or {}).get('incarnation')}) has taken this "
                "run over; this one ends"
            )

    def release(self) -> None:
        self._over.set()
        self._thread.join()
        if not self._lost.is_set():
            self._renew(is_released=True)

    def _number(self, first: int, silent_s: float) -> int:
        # Two that take over at once: only one can make the file of a number.
        number = max(first, 1)
        while True:
            try:
                os.close(
                    os.open(self._directory / f".incarnation-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                )
            except FileExistsError:
                _refuse_claimed(self._path, number, silent_s)
                number += 1  # left by one that died before it wrote its claim
                continue
            newest = _read(self._path)
            if newest is not None and int(newest.get("incarnation", 0)) > number:
                raise _refuse(self._path, newest)  # this one was taken for dead
            for old in range(max(number - 8, 0), number - 1):
                (self._directory / f".incarnation-{old}").unlink(missing_ok=True)
            return number

    def _renew(self, *, is_released: bool = False) -> None:
        self._beats += 1
        about = {"incarnation": self.incarnation, "key": self._key, "beats": self._beats, "is_released": is_released}
        write_json(self._path, {**about, "host": socket.gethostname(), "pid": os.getpid()}, writer=self._key)

    def _keep(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                self.check()
                self._renew()
            except FailedPrecondition:
                return
            except ElasticCTRError:
                continue  # a full disk: one that waits for silence also looks at the process


def _await_silence(path: Path, before: dict[str, Any], silent_s: float) -> None:
    deadline = time.monotonic() + silent_s
    while time.monotonic() < deadline and not _is_gone(before):
        time.sleep(0.1)
        now = _read(path)
        if now is None or now.get("is_released"):
            return
        if (now.get("key"), now.get("beats")) != (before.get("key"), before.get("beats")):
            raise _refuse(path, now)


def _refuse_claimed(path: Path, number: int, silent_s: float) -> None:
    deadline = time.monotonic() + silent_s
    while time.monotonic() < deadline:
        newest = _read(path)
        if newest is not None and int(newest.get("incarnation", 0)) >= number:
            raise _refuse(path, newest)
        time.sleep(0.05)


def _refuse(path: Path, found: dict[str, Any]) -> AlreadyExists:
    return AlreadyExists(
        f"{path.parent.parent}: a coordinator is at work on this run already (incarnation {found.get('incarnation')}, "
        f"process {found.get('pid')} on {found.get('host')}); stop that one first, or give another run directory"
    )


def _is_gone(claim: dict[str, Any]) -> bool:
    if claim.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(claim["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except (OSError, KeyError, TypeError, ValueError):
        return False
    # Process ids are reused: a process that is not our Python cannot be the coordinator.
    try:
        return b"python" not in Path(f"/proc/{claim['pid']}/cmdline").read_bytes().lower()
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except NotFound:
        return None
    except (Corruption, json.JSONDecodeError):
        return {}
