"""Versions that change under load: every answer from one version, every row right, memory released."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.process.cube.serving import ServerProcess, feasigns_of, rows_of, write_version

FEASIGNS = feasigns_of(30_000)


def judge(server: ServerProcess, stop: threading.Event, pinned: bool, seen: list[int], wrong: list[str]) -> None:
    """Sends lookups until stopped and checks every row of every answer against the version it names."""
    rng = np.random.default_rng(threading.get_ident())
    wire = server.wire()
    active = 0
    while not stop.is_set():
        asked = FEASIGNS[rng.integers(0, len(FEASIGNS), 300)]
        answer = wire.lookup(asked, version=active if pinned else 0)
        if pinned and answer.detail == 2:
            active = 0
            continue
        rows, found = answer.rows()
        if answer.status != 0 or not found.all() or not np.array_equal(rows, rows_of(answer.version, asked)):
            wrong.append(f"status {answer.status}, version {answer.version}")
            return
        active = answer.active
        seen.append(answer.version)


def test_no_answer_mixes_versions_while_they_change(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for version in (1, 2, 3):
        write_version(data, version, FEASIGNS)
    with ServerProcess(data, "--threads", "2") as server:
        server.activate(1)
        stop, wrong = threading.Event(), list[str]()
        seen: list[list[int]] = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=judge, args=(server, stop, i % 2 == 1, seen[i], wrong)) for i in range(len(seen))
        ]
        for thread in threads:
            thread.start()
        for round in range(30):
            version = round % 3 + 1
            server.activate(version)
            if round % 5 == 4:
                other = (round + 1) % 3 + 1
                server.http("POST", "/v1/retire", {"model": "ctr", "version": other})
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert all(set(one) == {1, 2, 3} for one in seen)


def test_memory_is_given_back_over_50_swaps(tmp_path: Path) -> None:
    data = tmp_path / "data"
    many = feasigns_of(100_000)
    for version in (1, 2):
        write_version(data, version, many)
    with ServerProcess(data) as server:
        wire = server.wire()
        server.activate(1)
        sizes = []
        for round in range(50):
            version = round % 2 + 1
            server.activate(version)
            server.http("POST", "/v1/retire", {"model": "ctr", "version": 3 - version})
            assert wire.lookup(many[:10]).version == version
            sizes.append(server.rss_bytes())
        deadline = time.monotonic() + 60
        while server.rss_bytes() > sizes[5] + (3 << 20) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.rss_bytes() < sizes[5] + (3 << 20), [s >> 20 for s in sizes]


@pytest.mark.parametrize("threads", [1, 2])
def test_activation_is_quick_and_waits_for_no_load(tmp_path: Path, threads: int) -> None:
    data = tmp_path / "data"
    write_version(data, 1, FEASIGNS)
    write_version(data, 2, FEASIGNS)
    with ServerProcess(data, "--threads", str(threads)) as server:
        server.activate(1)
        server.activate(2)
        wire = server.wire()
        for version in (1, 2) * 5:
            assert server.http("POST", "/v1/activate", {"model": "ctr", "version": version})[0] == 200
            assert wire.lookup(FEASIGNS[:5]).version == version, "seen by the next request"
