"""Who may publish: one at a time, not counting dead processes."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.versions.synthetic import publish

from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.storage import open_store
from elasticctr.versions import Repository, Segment
from elasticctr.versions.lease import LOCK, PublisherLease
from elasticctr.versions.rollback import rollback
from elasticctr.versions.writer import VersionWriter


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(str(tmp_path / "repo"))
    publish(repository, "ctr", 1, [1])
    return repository


def test_one_publisher_at_a_time(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with PublisherLease(store, "ctr") as lease:
        lease.renew()
        with pytest.raises(Unavailable, match=f"process {os.getpid()} .* is publishing"), PublisherLease(store, "ctr"):
            pass
        with PublisherLease(store, "other"):
            pass
    with PublisherLease(store, "ctr"):
        pass
    assert store.list("ctr") == []


@pytest.mark.parametrize("text", [b"", b"garbage", b"[]", b'{"expires": 1, "pid": 1, "host": "elsewhere"}'])
def test_a_lock_past_its_time_or_unreadable_is_broken(tmp_path: Path, text: bytes) -> None:
    store = open_store(str(tmp_path))
    store.write_bytes(f"ctr/{LOCK}", text)
    if b"expires" not in text:
        # Where files appear before their contents, an empty one may be a lock just being taken.
        with pytest.raises(Unavailable, match="cannot be read"), PublisherLease(store, "ctr"):
            pass
        os.utime(tmp_path / "ctr" / LOCK, (1, 1))
    with PublisherLease(store, "ctr"):
        pass


def test_a_lock_of_another_machine_holds_until_its_time(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    held = {"owner": "x", "pid": 1, "host": "elsewhere", "expires": time.time() + 100}
    store.write_bytes(f"ctr/{LOCK}", json.dumps(held).encode())
    with pytest.raises(Unavailable, match="elsewhere") as caught, PublisherLease(store, "ctr"):
        pass
    assert caught.value.retry_after_s is not None
    assert 50 < caught.value.retry_after_s <= 100


def test_a_publisher_taken_for_dead_announces_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = PublisherLease(repository.store, "ctr")
    lost.__enter__()
    held = json.loads(repository.store.read_bytes(f"ctr/{LOCK}"))
    repository.store.write_bytes(f"ctr/{LOCK}", json.dumps(held | {"expires": 1}).encode())
    with PublisherLease(repository.store, "ctr"):
        with pytest.raises(FailedPrecondition, match="took over"):
            lost.renew()
        lost.__exit__(None, None, None)
        assert repository.store.exists(f"ctr/{LOCK}")


def test_two_publishers_at_once(tmp_path: Path) -> None:
    """Four publish as fast as they can: every version has its own number, and the others are told to wait."""
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


def test_a_number_given_to_another_process_is_no_sign_of_life(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    PublisherLease(store, "ctr").__enter__()
    held = json.loads(store.read_bytes(f"ctr/{LOCK}"))
    store.write_bytes(f"ctr/{LOCK}", json.dumps(held | {"started": held["started"] - 1}).encode())
    with PublisherLease(store, "ctr") as lease:
        lease.renew()


class SlowRows:
    """Rows that take longer than the lease lasts; the lock is checked between them."""

    estimate = 1

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def read(self, buckets: tuple[int, int]) -> Iterator[Any]:
        for feasign in range(6):
            self._look()
            yield np.array([feasign], np.uint64), np.zeros((1, 3), np.float32)


@pytest.mark.promise(
    "a table takes longer to write than the lease lasts", "the lease is renewed between and within its parts"
)
def test_the_lease_is_renewed_while_a_table_is_written(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"s": 0.0}
    monkeypatch.setattr("elasticctr.versions.lease.time.monotonic", lambda: clock["s"])
    monkeypatch.setattr("elasticctr.versions.lease.time.time", lambda: 1e9 + clock["s"])

    def look() -> None:
        clock["s"] += 300.0
        with pytest.raises(Unavailable, match="is publishing"), PublisherLease(repository.store, "ctr"):
            pass

    with PublisherLease(repository.store, "ctr") as lease:
        writer = VersionWriter(repository, "ctr", 2, lease)
        writer.add_table("main", (Segment(name="e", dim=3),), "fp32", SlowRows(look), np.zeros(0, np.uint64))
        writer.announce(writer.commit("base", None, {}))
    assert repository.live("ctr").version == 2


def test_a_rollback_that_lost_its_lease_appends_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(repository, "ctr", 2, [2])
    chain = Repository.chain

    def paused(self: Repository, model: str, version: int) -> Any:
        repository.store.write_bytes(f"ctr/{LOCK}", b'{"owner": "another", "pid": 1, "expires": 99999999999}')
        return chain(self, model, version)

    monkeypatch.setattr(Repository, "chain", paused)
    with pytest.raises(FailedPrecondition, match="took over"):
        rollback(repository, "ctr")
    assert repository.live("ctr").version == 2


def test_a_lock_is_taken_over_once(tmp_path: Path) -> None:
    """Eight find the same stale lock."""
    store = open_store(str(tmp_path))
    store.write_bytes(f"ctr/{LOCK}", b'{"expires": 1, "pid": 1, "host": "elsewhere"}')
    gate, taken = threading.Barrier(8), []

    def take() -> None:
        gate.wait()
        with contextlib.suppress(Unavailable):
            taken.append(PublisherLease(store, "ctr").__enter__())

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    taken[0].renew()
