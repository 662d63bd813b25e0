"""When memory is short: by the job's limit, by a cgroup around the process, and not for pages of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticctr.ps.pserver.memory import MemoryWatch

PAGE = os.sysconf("SC_PAGE_SIZE")


def make_machine(root: Path, *, resident_mib: int, limit: str = "max", anon_mib: int = 0, outer: str = "max") -> Path:
    proc, cgroups = root / "proc", root / "cgroups"
    inner = cgroups / "jobs" / "one"
    proc.mkdir()
    inner.mkdir(parents=True)
    pages = resident_mib * (1 << 20) // PAGE
    (proc / "statm").write_text(f"{pages * 2} {pages} 0 0 0 0 0\n")
    (proc / "cgroup").write_text("1:name=systemd:/x\n0::/jobs/one\n")
    for directory, value in ((inner, limit), (cgroups / "jobs", outer)):
        (directory / "memory.max").write_text(value + "\n")
        (directory / "memory.stat").write_text(f"anon {anon_mib << 20}\nfile {900 << 20}\nshmem 0\n")
    return root


def look(root: Path, limit_mib: int | None = None) -> str:
    return str(MemoryWatch(limit_mib, root / "proc", root / "cgroups").look() or "")


def test_the_limit_of_the_job(tmp_path: Path) -> None:
    make_machine(tmp_path, resident_mib=950, limit=str(1 << 20), anon_mib=900)
    assert look(tmp_path, 1024) == "0.93 of 1.00 GiB are in use (cluster.pserver_memory_mib)"
    assert look(tmp_path, 1100) == ""  # what the job says goes before what the machine says


@pytest.mark.parametrize(
    ("limit", "outer", "anon_mib", "whose"),
    [
        ("max", "max", 990, ""),
        (str(1 << 30), "max", 950, "one"),
        (str(1 << 30), "max", 900, ""),
        ("max", str(1 << 30), 950, "jobs"),
    ],
)
def test_the_cgroup_or_one_around_it(limit: str, outer: str, anon_mib: int, whose: str, tmp_path: Path) -> None:
    make_machine(tmp_path, resident_mib=10, limit=limit, anon_mib=anon_mib, outer=outer)
    found = look(tmp_path)
    assert found == (f"0.93 of 1.00 GiB are in use (memory.max of the cgroup {find(tmp_path, whose)})" if whose else "")


def find(root: Path, name: str) -> Path:
    return root / "cgroups" / "jobs" / ("one" if name == "one" else "")


def test_a_machine_that_says_nothing_has_no_limit(tmp_path: Path) -> None:
    assert look(tmp_path) == ""
