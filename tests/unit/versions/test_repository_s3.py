"""A repository on S3, by a moto server: bases, deltas, rollback, retention, a crash, all with the same results."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.s3 import serving_s3
from tests.unit.versions.synthetic import publish, row_values

from elasticctr.errors import Unavailable
from elasticctr.storage import open_store
from elasticctr.versions import Repository
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.removal import carry_out, plan_removal
from elasticctr.versions.rollback import rollback
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.writer import VersionWriter, append_event, next_version


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with serving_s3("models"):
        yield "s3://models/repo"


def remove(repository: Repository, keep: int | None, later_s: float = 0.0) -> list[int]:
    with PublisherLease(repository.store, "ctr") as lease:
        plan = plan_removal(repository, "ctr", keep, now=time.time() + later_s)
        carry_out(repository, plan, lease)
    return plan.going


def test_a_repository_on_s3(bucket: str) -> None:
    repository = Repository(bucket)
    assert repository.models() == []
    one = publish(repository, "ctr", 1, [1, 2, 3])
    two = publish(repository, "ctr", 2, [2], [3], one)
    publish(repository, "ctr", 3, [7], [], two)
    publish(repository, "ctr", 4, [8])
    assert repository.models() == ["ctr"]
    assert [m.version for m in repository.versions("ctr")] == [1, 2, 3, 4]
    asked = np.array([1, 2, 3, 7], dtype=np.uint64)
    rows, found = get_rows(repository, repository.chain("ctr", 3), "main", asked)
    assert found.tolist() == [True, True, False, True]
    assert rows[1].tolist() == row_values(2, asked[1:2])[0].tolist()
    with PublisherLease(repository.store, "ctr"), pytest.raises(Unavailable, match="is publishing"):
        rollback(repository, "ctr")
    assert rollback(repository, "ctr").version == 3
    repository.store.write_bytes("ctr/5/sparse/main/part-00000.arrow", b"left by a killed publisher")
    assert remove(repository, None) == []  # somebody may still be writing it
    assert remove(repository, None, later_s=700) == [5]
    repository.pin("ctr", "server", [4], ttl_s=3600)
    assert remove(repository, 1, later_s=700) == []
    assert rollback(repository, "ctr", 4).version == 4
    publish(repository, "ctr", 6, [9])
    assert remove(repository, 1) == []
    assert remove(repository, 1, later_s=700) == [1, 2, 3]
    assert [m.version for m in repository.versions("ctr")] == [4, 6]
    assert repository.store.list("ctr") == ["4/", "6/", "donefile", "pins/"]


@pytest.mark.promise(
    "a publisher on S3 is paused past its lease, another publishes, the first wakes up and announces",
    "both lines are in the donefile, each once, and the newer version stays live",
)
def test_a_paused_publisher_erases_nothing(bucket: str) -> None:
    repository = Repository(f"{bucket}-paused")
    publish(repository, "ctr", 1, [1])
    with PublisherLease(repository.store, "ctr") as lease:
        slow = VersionWriter(repository, "ctr", next_version(repository, "ctr"), lease)
        slow.add_file("schema.json", b"{}")
        manifest = slow.commit("base", None, {})
        # Its lease runs out just after it looked for the last time.
        repository.store.write_bytes("ctr/publisher.lock", b'{"owner": "x", "pid": 1, "expires": 1}')
        store = repository.store
        read = store.read_bytes

        def wake_late(name: str) -> bytes:
            data = read(name)
            if name.endswith("donefile"):
                store.read_bytes = read  # type: ignore[method-assign]
                assert next_version(Repository(repository.url), "ctr") == 3
                publish(Repository(repository.url), "ctr", 3, [3])
            return data

        store.read_bytes = wake_late  # type: ignore[method-assign]
        event = repository.events("ctr")[0]
        digest = hashlib.sha256(read("ctr/2/manifest.json")).hexdigest()
        append_event(repository, "ctr", replace(event, version=2, base=2, manifest_sha256=digest))
    assert [e.version for e in repository.events("ctr")] == [1, 3, 2]
    assert repository.live("ctr").version == 3 and repository.manifest("ctr", 2) == manifest


@pytest.mark.promise(
    "many publishers append to a donefile on S3 at the same moment", "no line is lost and none occurs twice"
)
def test_appending_at_once_loses_nothing(bucket: str) -> None:
    lines = [f"{writer} {number}\n".encode() for writer in range(4) for number in range(5)]

    def write(writer: int) -> None:
        store = open_store(f"{bucket}-at-once")
        for line in lines[writer * 5 : writer * 5 + 5]:
            store.append("log", line)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(open_store(f"{bucket}-at-once").read_bytes("log").splitlines(keepends=True)) == sorted(lines)


@pytest.mark.promise(
    "S3 writes a donefile line and its answer is lost",
    "before a retry the file is searched for the line, which occurs once",
)
@pytest.mark.parametrize("is_written", [False, True])
def test_a_lost_answer_writes_no_line_twice(bucket: str, is_written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"{bucket}-lost-{is_written}")
    store.append("log", b"one\n")
    client = store._client  # type: ignore[attr-defined]
    pipe, calls = client.pipe_file, []

    def lose(path: str, data: bytes, **options: object) -> object:
        calls.append(data)
        if len(calls) > 1:
            return pipe(path, data, **options)
        if is_written:
            pipe(path, data, **options)
        raise TimeoutError("no answer")

    monkeypatch.setattr(client, "pipe_file", lose)
    store.append("log", b"two\n")
    assert store.read_bytes("log") == b"one\ntwo\n" and len(calls) == 1 + (not is_written)


@pytest.mark.parametrize("code", ["InternalError", "SlowDown", "NoSuchBucketPolicy"])
@pytest.mark.promise(
    "S3 fails with a text that says 'exist' or 'not found'", "only specific answers count as taken or missing"
)
def test_other_errors_are_neither_taken_nor_missing(bucket: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"{bucket}-errors")
    client = store._client  # type: ignore[attr-defined]

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, f"{code}: the backend that should exist was not found")

    for name in ("pipe_file", "cat_file", "info"):
        monkeypatch.setattr(client, name, fail)
    for ask in (
        lambda: store.write_new("lock", b"me"),
        lambda: store.read_bytes("donefile"),
        lambda: store.exists("donefile"),
        lambda: Repository(store.url, store).log("ctr"),
        lambda: plan_removal(Repository(store.url, store), "ctr"),
    ):
        with pytest.raises(Unavailable):
            ask()
