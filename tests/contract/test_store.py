"""One suite for all stores: the local disk, S3 (a real moto server) and fsspec's memory."""

from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.s3 import serving_s3

from elasticctr.errors import ConfigError, InternalError, NotFound
from elasticctr.storage import Store, open_store


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with serving_s3("models"):
        yield "s3://models"


@pytest.fixture(params=["local", "file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "local":
            return open_store(str(tmp_path / "repo"))
        case "file":
            return open_store(f"file://{tmp_path}/repo/")
        case "memory":
            return open_store(f"memory://{uuid.uuid4().hex}")
        case _:
            return open_store(f"{request.getfixturevalue('bucket')}/{uuid.uuid4().hex}")


def test_files_are_written_read_listed_and_removed(store: Store) -> None:
    assert store.list() == [] and not store.exists("a/b") and store.list("a") == []
    store.write_bytes("a/b", b"one")
    store.write_bytes("a/b", b"three")
    store.write_bytes("a/c/d", b"x" * 100_000)
    assert store.read_bytes("a/b") == b"three" and store.size("a/b") == 5 and store.exists("a/b")
    assert store.list() == ["a/"] and store.list("a") == ["b", "c/"]
    with store.open("a/c/d") as file:
        file.seek(99_990)
        assert file.read() == b"x" * 10
    store.delete("a/b")
    store.delete("a/b")
    assert store.list("a") == ["c/"]
    store.delete_tree("a")
    store.delete_tree("a")
    assert store.list("a") == [] and not store.exists("a/c/d")


def test_a_missing_file_is_not_found(store: Store) -> None:
    for ask in (store.read_bytes, store.size, store.open):
        with pytest.raises(NotFound):
            ask("no/such")


def test_created_files_appear_whole_or_not_at_all(store: Store) -> None:
    with store.create("a/b") as file:
        file.write(b"first ")
        file.write(b"second")
        assert not store.exists("a/b")
    assert store.read_bytes("a/b") == b"first second"
    with pytest.raises(ZeroDivisionError), store.create("a/b") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert store.read_bytes("a/b") == b"first second" and store.list("a") == ["b"]


def test_a_new_file_is_made_once(store: Store) -> None:
    assert store.write_new("lock", b"me")
    assert not store.write_new("lock", b"you")
    assert store.read_bytes("lock") == b"me" and store.list() == ["lock"]


def test_appending_adds_to_the_end(store: Store) -> None:
    store.append("log", b"one\n")
    store.append("log", b"two\n")
    assert store.read_bytes("log") == b"one\ntwo\n"


def test_appending_from_several_threads_loses_nothing(store: Store) -> None:
    lines = [f"{writer} {number}\n".encode() for writer in range(3) for number in range(4)]

    def write(writer: int) -> None:
        for line in lines[writer * 4 : writer * 4 + 4]:
            store.append("log", line)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(store.read_bytes("log").splitlines(keepends=True)) == sorted(lines)


def test_replacing_only_what_is_expected(store: Store) -> None:
    assert not store.replace("a/lock", b"me", b"") and not store.exists("a/lock")
    store.write_bytes("a/lock", b"you")
    assert not store.replace("a/lock", b"me", b"she")
    assert store.replace("a/lock", b"me", b"you") and store.read_bytes("a/lock") == b"me"
    assert store.list("a") == ["lock"]


def test_when_something_was_written(store: Store) -> None:
    with pytest.raises(NotFound):
        store.modified("a")
    store.write_bytes("a/b/c", b"x")
    for name in ("a", "a/b", "a/b/c"):
        written_s = store.modified(name)
        assert written_s is not None and abs(time.time() - written_s) < 60


@pytest.mark.promise(
    "the disk fills while a donefile line is written", "the line is removed, and the next one starts clean"
)
@pytest.mark.parametrize("written", [0, 3, 9])
def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.append("log", b"one\n")
    write, left = os.write, written

    def short(file: int, data: memoryview) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= (count := write(file, data[:left]))
        return count

    with monkeypatch.context() as patch:
        patch.setattr("elasticctr.storage.store.os.write", short)
        with pytest.raises(InternalError, match="the disk is full"):
            store.append("log", b"and another\n")
    assert store.read_bytes("log") == b"one\n"
    store.append("log", b"two\n")
    assert store.read_bytes("log") == b"one\ntwo\n"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("elasticctr.storage.store.os.write", lambda file, data: write(file, data[:2]))
    open_store(str(tmp_path)).append("log", b"a whole line\n")
    assert (tmp_path / "log").read_bytes() == b"a whole line\n"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.", "a\\b", "a\0b"])
def test_names_stay_below_the_store(store: Store, name: str) -> None:
    with pytest.raises(ConfigError):
        store.write_bytes(name, b"")


@pytest.mark.parametrize("url", ["", " ", "http://host/x", "nosuch://x"])
def test_places_that_cannot_be_written(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)


def test_sweeping_spares_files(store: Store) -> None:
    store.write_bytes("a/b", b"stays")
    store.sweep("a")
    store.sweep("nothing")
    assert store.list("a") == ["b"]


def test_only_old_leftovers_are_swept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write_bytes("a/b", b"stays")
    old, young = tmp_path / "a" / ".writing-x", tmp_path / "a" / ".writing-y"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    assert store.list("a") == ["b"]
    store.sweep("a")
    assert not old.exists() and young.exists() and store.read_bytes("a/b") == b"stays"
