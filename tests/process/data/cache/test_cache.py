"""Caches built by separate processes: killed, and on a full disk."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.data.cache.test_cache import SCHEMA, make, write_log


def _build_in_a_process(log: Path, directory: Path, before: str = "") -> subprocess.Popen[str]:
    code = f"""
import resource, signal
from elasticctr.data import Schema, ReadOptions
from elasticctr.data.cache import build_cache
from elasticctr.storage import resolve
from elasticctr.errors import ElasticCTRError
schema = Schema.model_validate_json({SCHEMA.model_dump_json()!r})
{before}
print("started", flush=True)
try:
    build_cache({str(directory)!r}, resolve({str(log)!r}), schema, ReadOptions())
except ElasticCTRError as e:
    print(type(e).__name__, e)
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", 30_000)
    limit = (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))"
    )
    output, _ = _build_in_a_process(log, tmp_path / "cache", limit).communicate(timeout=60)
    assert "InternalError" in output
    assert "cache: no room for the cache" in output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]


def test_a_killed_build_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", 200_000)
    process = _build_in_a_process(log, tmp_path / "cache")
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".cache.tmp-*/samples.arrow")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list(tmp_path.glob(".cache.tmp-*"))
    assert not (tmp_path / "cache").exists()
    small = write_log(tmp_path / "small", 100)
    make(small, tmp_path / "cache").verify()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "log", "small"]
