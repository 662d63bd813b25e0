"""Stores without appends and conditional writes (here fsspec's memory): every line is a separate object."""

from __future__ import annotations

import uuid

import pytest

from elasticctr.errors import NotFound, Unavailable
from elasticctr.storage import open_store
from elasticctr.storage.parted_store import PartedStore
from elasticctr.storage.remote_store import RemoteStore


@pytest.fixture
def store() -> PartedStore:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    assert isinstance(store, PartedStore)
    return store


@pytest.mark.promise(
    "two publishers append to the donefile of an object store without conditional writes",
    "every line is a separate object, so that none is lost",
)
def test_a_publisher_that_saw_an_older_file_erases_nothing(store: PartedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("donefile", b"one\n")
    seen = store._parts("donefile")
    store.append("donefile", b"two\n")
    monkeypatch.setattr(store, "_parts", lambda name: seen)  # paused since
    store.append("donefile", b"late\n")
    monkeypatch.undo()
    first, *others = store.read_bytes("donefile").splitlines()
    assert first == b"one" and sorted(others) == [b"late", b"two"]
    assert store.list() == ["donefile"] and store.size("donefile") == 13


def test_a_lost_answer_writes_no_line_twice(store: PartedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def write(self: RemoteStore, name: str, data: bytes) -> None:
        calls.append(name)
        original(self, name, data)
        if len(calls) == 1:
            raise Unavailable("the answer is lost")

    original = RemoteStore.write_bytes
    monkeypatch.setattr(RemoteStore, "write_bytes", write)
    store.append("donefile", b"one\n")
    assert len(calls) == 2 and store.read_bytes("donefile") == b"one\n"


def test_a_place_that_stays_away_is_an_error(store: PartedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: RemoteStore, name: str, data: bytes) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(RemoteStore, "write_bytes", write)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(Unavailable, match="away"):
        store.append("donefile", b"one\n")


def test_lines_are_added_to_a_file_from_before(store: PartedStore) -> None:
    store.write_bytes("donefile", b"one\n")
    for number in range(12):
        store.append("donefile", b"%d\n" % number)
    assert store.read_bytes("donefile") == b"one\n" + b"".join(b"%d\n" % number for number in range(12))


def test_replacing_keeps_what_came_meanwhile(store: PartedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("donefile", b"one\n")
    assert not store.replace("donefile", b"new\n", b"other\n")
    seen = store._parts("donefile")
    store.append("donefile", b"two\n")
    monkeypatch.setattr(store, "_parts", lambda name: seen)
    assert store.replace("donefile", b"new\n", b"one\n")
    monkeypatch.undo()
    assert store.read_bytes("donefile") == b"new\ntwo\n"
    store.delete("donefile")
    assert not store.exists("donefile")
    with pytest.raises(NotFound):
        store.read_bytes("donefile")
    assert not store.replace("donefile", b"new\n", b"")
