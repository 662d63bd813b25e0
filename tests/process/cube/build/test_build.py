"""Builds in separate processes: killed, concurrent, and measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.unit.cube.rows import build

from elasticctr.cube.directory import find_versions

SCRIPT = """
import sys, time
import numpy as np
from pathlib import Path
from tests.unit.cube.rows import Rows, rows_of
from elasticctr.cube.build.builder import BuildOptions, Target, build_tables

class Slow(Rows):
    def blocks(self):
        for block in super().blocks():
            print("block", flush=True)
            time.sleep(float(sys.argv[2]))
            yield block

feasigns = np.arange(int(sys.argv[3]), dtype=np.uint64)
source = Slow(feasigns, rows_of(1, feasigns, 16), block=20000)
build_tables({"t": source}, Path(sys.argv[1]), Target("m", 1), BuildOptions(memory_bytes=int(sys.argv[4])))
"""


def start(out: Path, pause_s: float, rows: int, memory: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[4]
    arguments = [sys.executable, "-c", SCRIPT, str(out), str(pause_s), str(rows), str(memory)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment, cwd=root)


def test_a_killed_build_leaves_nothing_that_counts_and_the_next_cleans_up(tmp_path: Path) -> None:
    process = start(tmp_path, 0.05, 1_000_000, 16 << 20)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    left = [entry.name for entry in (tmp_path / "m").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".writing-1-")
    assert find_versions(tmp_path / "m") == []
    build(tmp_path, 1, np.array([3], np.uint64))
    assert [entry.name for entry in (tmp_path / "m").iterdir()] == ["1"]


def test_a_build_beside_another_does_not_touch_it(tmp_path: Path) -> None:
    process = start(tmp_path, 0.02, 200_000, 16 << 20)
    assert process.stdout is not None
    process.stdout.readline()
    build(tmp_path, 2, np.array([3], np.uint64))
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert find_versions(tmp_path / "m") == [1, 2]


def test_memory_stays_within_its_bound(tmp_path: Path) -> None:
    def peak_of(rows: int) -> int:
        process = start(tmp_path / str(rows), 0, rows, 64 << 20)
        assert process.stdout is not None
        process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss * 1024

    small, large = peak_of(1000), peak_of(2_000_000)
    own = 2_000_000 * (8 + 64)  # the script's own rows
    assert large - small < own + (96 << 20)
