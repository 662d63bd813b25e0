"""Roles that are plain shell commands, and a list of running processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from elasticctr.cluster.engine import RoleKind, RoleSpec

SHELL = ("/bin/sh", "-c")


def shell_role(script: str, kind: RoleKind = "trainer", index: int = 0, **more: object) -> RoleSpec:
    return RoleSpec(kind, index, [script], **more)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def until(check: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def read_pid(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def leader_of(pid: int) -> int:
    return os.getsid(pid)
