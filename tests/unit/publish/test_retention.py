"""What is removed and what never is; what killed publishers leave; who may publish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.unit.publish.synthetic import publish

from elasticctr.data.sources import open_store
from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.publish import Repository
from elasticctr.publish.lease import LOCK, Lease
from elasticctr.publish.retention import clean, prune, removable
from elasticctr.publish.rollback import rollback


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """1 ← 2 ← 3, 4 ← 5, 6, 7"""
    repository = Repository(str(tmp_path / "repo"))
    one = publish(repository, "ctr", 1, [1])
    two = publish(repository, "ctr", 2, [2], [], one)
    publish(repository, "ctr", 3, [3], [], two)
    four = publish(repository, "ctr", 4, [4])
    publish(repository, "ctr", 5, [5], [], four)
    publish(repository, "ctr", 6, [6])
    publish(repository, "ctr", 7, [7])
    return repository


def left(repository: Repository) -> list[int]:
    return [manifest.version for manifest in repository.versions("ctr")]


def test_the_newest_stay_and_the_one_before_the_live_one(repository: Repository):
    assert prune(repository, "ctr", 1) == [1, 2, 3, 4, 5]
    assert left(repository) == [6, 7]
    assert sorted(p.name for p in Path(repository.url, "ctr").iterdir()) == ["6", "7", "donefile"]


def test_what_a_kept_version_stands_on_stays(repository: Repository):
    assert removable(repository, "ctr", 3) == [1, 2, 3]
    assert left(repository) == [1, 2, 3, 4, 5, 6, 7]


def test_the_live_version_stays_however_old(repository: Repository):
    rollback(repository, "ctr", 2)
    assert prune(repository, "ctr", 1) == [3, 4, 5, 6]
    assert left(repository) == [1, 2, 7] and repository.live("ctr").version == 2


def test_pinned_versions_stay_while_pinned(repository: Repository):
    repository.pin("ctr", "server", [3], ttl_s=60)
    repository.pin("ctr", "gone", [5], ttl_s=-1)
    assert prune(repository, "ctr", 1) == [4, 5]
    repository.unpin("ctr", "server")
    assert prune(repository, "ctr", 1) == [1, 2, 3]


def test_leftovers_of_killed_publishers_are_removed(repository: Repository):
    store = repository.store
    store.write_bytes("ctr/8/sparse/main/part-00000.arrow", b"half")
    store.write_bytes("ctr/9/manifest.json", b"{}")  # complete, but never announced
    store.delete("ctr/4/manifest.json")  # half removed
    store.write_bytes("ctr/notes/keep.txt", b"not ours")
    assert clean(repository, "ctr") == [4, 8, 9]
    assert store.exists("ctr/notes/keep.txt") and left(repository) == [1, 2, 3, 5, 6, 7]


def test_one_publisher_at_a_time(tmp_path: Path):
    store = open_store(str(tmp_path))
    with Lease(store, "ctr") as lease:
        lease.renew()
        with pytest.raises(Unavailable, match=f"process {os.getpid()} .* is publishing"), Lease(store, "ctr"):
            pass
        with Lease(store, "other"):
            pass
    with Lease(store, "ctr"):
        pass
    assert store.list("ctr") == []


def test_a_dead_publishers_lock_is_broken(tmp_path: Path):
    store = open_store(str(tmp_path))
    code = "import os, sys; from elasticctr.data.sources import open_store; from elasticctr.publish.lease import Lease;"
    code += f"Lease(open_store({str(tmp_path)!r}), 'ctr').__enter__(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert store.exists(f"ctr/{LOCK}")
    with Lease(store, "ctr") as lease:
        lease.renew()


@pytest.mark.parametrize("text", [b"", b"garbage", b"[]", b'{"expires": 1, "pid": 1, "host": "elsewhere"}'])
def test_a_lock_past_its_time_or_unreadable_is_broken(tmp_path: Path, text: bytes):
    store = open_store(str(tmp_path))
    store.write_bytes(f"ctr/{LOCK}", text)
    with Lease(store, "ctr"):
        pass


def test_a_lock_of_another_machine_holds_until_its_time(tmp_path: Path):
    store = open_store(str(tmp_path))
    held = {"owner": "x", "pid": 1, "host": "elsewhere", "expires": time.time() + 100}
    store.write_bytes(f"ctr/{LOCK}", json.dumps(held).encode())
    with pytest.raises(Unavailable, match="elsewhere") as caught, Lease(store, "ctr"):
        pass
    assert 50 < caught.value.retry_after_s <= 100


def test_a_publisher_taken_for_dead_announces_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    lost = Lease(repository.store, "ctr")
    lost.__enter__()
    held = json.loads(repository.store.read_bytes(f"ctr/{LOCK}"))
    repository.store.write_bytes(f"ctr/{LOCK}", json.dumps(held | {"expires": 1}).encode())
    with Lease(repository.store, "ctr"):
        with pytest.raises(FailedPrecondition, match="took over"):
            lost.renew()
        lost.__exit__(None, None, None)
        assert repository.store.exists(f"ctr/{LOCK}")


def test_two_publishers_at_once(tmp_path: Path):
    """Four publish as fast as they can: every version has its own number, everyone else is told to wait."""
    repository = Repository(str(tmp_path))
    made: list[int] = []
    refused: list[str] = []
    numbering = threading.Lock()

    def work() -> None:
        for _ in range(8):
            with numbering:
                version = max([0, *made]) + 1 + len(refused)
            try:
                publish(repository, "ctr", version, [version])
                made.append(version)
            except Unavailable as e:
                refused.append(str(e))
            except FailedPrecondition as e:
                refused.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) + len(refused) == 32 and made
    assert sorted(e.version for e in repository.events("ctr")) == sorted(made)
    assert repository.store.list("ctr").count(LOCK) == 0
