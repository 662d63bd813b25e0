"""A version's build directory: beside its final place, and moved there only when complete.

A killed build leaves a `.writing-*` directory, which the next build in the same place removes. Concurrent builds do not
touch each other's: every build locks its directory, and the lock ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticctr.errors import AlreadyExists
from elasticctr.storage.atomic import explain_write, sync_directory

PREFIX = ".writing-"


@contextmanager
def building(place: Path) -> Iterator[Path]:
    """A directory to write into. It becomes `place` if the block succeeds."""
    if place.exists():
        raise AlreadyExists(f"{place}: already exists; versions never change, so remove it or build another number")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        directory, lock = _make(place)
    except OSError as e:
        raise explain_write(e, place) from None
    try:
        yield directory
        _put(directory, place)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _make(place: Path) -> tuple[Path, int]:
    parent = os.open(place.parent, os.O_RDONLY)
    try:
        # No other build may clean up between making and locking the directory.
        fcntl.flock(parent, fcntl.LOCK_EX)
        _remove_abandoned(place.parent)
        directory = place.parent / f"{PREFIX}{place.name}-{os.getpid()}-{secrets.token_hex(4)}"
        directory.mkdir()
        lock = os.open(directory, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return directory, lock
    finally:
        os.close(parent)


def _remove_abandoned(parent: Path) -> None:
    for found in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(found, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _put(directory: Path, place: Path) -> None:
    try:
        for below in [*(entry for entry in directory.iterdir() if entry.is_dir()), directory]:
            sync_directory(below)
        directory.rename(place)
        sync_directory(place.parent)
    except FileExistsError:
        raise AlreadyExists(f"{place}: another build made it meanwhile") from None
    except OSError as e:
        if place.exists():
            raise AlreadyExists(f"{place}: another build made it meanwhile") from None
        raise explain_write(e, place) from None
