"""How much memory this process may still take, before the kernel kills it.

The limit is the job's (`cluster.pserver_memory_mib`), or what the machine sets: the cgroup's memory.max, which all its
processes share, or RLIMIT_AS. A pserver that comes near it reports that while it still can.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST = 0.9  # of the limit; a table that grows needs room for its next index
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Shortage:
    """Memory that is nearly used up."""

    used: int
    limit: int
    whose: str  # the limit

    def __str__(self) -> str:
        return f"{self.used / _GIB:.2f} of {self.limit / _GIB:.2f} GiB are in use ({self.whose})"


class MemoryWatch:
    def __init__(self, limit_mib: int | None, proc: Path = Path("/proc/self"), cgroups: Path | None = None) -> None:
        self._limit = None if limit_mib is None else limit_mib * _MIB
        self._proc = proc
        self._cgroups = _find_cgroups(proc, cgroups or Path("/sys/fs/cgroup"))
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        self._address_space = None if soft == resource.RLIM_INFINITY else soft

    def look(self) -> Shortage | None:
        """What is short, or None."""
        for found in self._limits():
            if found.used > MOST * found.limit:
                return found
        return None

    def _limits(self) -> Iterator[Shortage]:
        size, resident = _read_pages(self._proc / "statm")
        if self._limit is not None:
            yield Shortage(resident, self._limit, "cluster.pserver_memory_mib")
            return
        if self._address_space is not None:
            yield Shortage(size, self._address_space, "the address space that ulimit -v allows")
        for directory in self._cgroups:
            limit = _read_number(directory / "memory.max")
            used = _read_anonymous(directory / "memory.stat")
            if limit and used:
                yield Shortage(used, limit, f"memory.max of the cgroup {directory}")


def _find_cgroups(proc: Path, root: Path) -> list[Path]:
    """This process's cgroup and those around it that have a limit, of version 2."""
    try:
        line = next(text for text in (proc / "cgroup").read_text().splitlines() if text.startswith("0::"))
    except (OSError, StopIteration):
        return []
    at = root / line.removeprefix("0::").lstrip("/")
    chain = [at, *at.parents]
    inside = [path for path in chain if path == root or root in path.parents]
    return [path for path in inside if _read_number(path / "memory.max") is not None]


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max": none


def _read_anonymous(path: Path) -> int:
    """Bytes that the kernel cannot take back: pages of files do not count."""
    used = 0
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables"):
                used += int(value)
    except (OSError, ValueError):
        return 0
    return used


def _read_pages(path: Path) -> tuple[int, int]:
    """Size and resident part of a process, in bytes."""
    try:
        size, resident, *_ = path.read_text().split()
        page = os.sysconf("SC_PAGE_SIZE")
        return int(size) * page, int(resident) * page
    except (OSError, ValueError):
        return 0, 0
