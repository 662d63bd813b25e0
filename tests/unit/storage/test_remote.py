"""S3 against a real moto server. No HDFS namenode runs in the tests: its client is made and its errors explained."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from typing import Any, cast

import hdfs_native
import pytest
from tests.s3 import serving_s3

from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, NotFound, Unavailable
from elasticctr.storage import resolve
from elasticctr.storage.remote import open_file

SCHEMA = Schema.model_validate({"slots": [{"kind": "sparse", "name": "u"}]})


def lines(first: int, count: int) -> bytes:
    return b"".join(b"click:%d u:%d\n" % (i % 2, i) for i in range(first, first + count))


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with serving_s3("logs") as client:
        for hour in range(3):
            key = f"clicks/20200401/{hour:02}"
            client.put_object(Bucket="logs", Key=f"{key}/part-0", Body=lines(hour * 2000, 1000))
            client.put_object(
                Bucket="logs", Key=f"{key}/part-1.gz", Body=gzip.compress(lines(hour * 2000 + 1000, 1000))
            )
            if hour < 2:
                client.put_object(Bucket="logs", Key=f"{key}/donefile", Body=b"")
        client.put_object(Bucket="logs", Key="clicks/_SUCCESS", Body=b"")
        yield "s3://logs/clicks"


def users(location: str | list[str], **options: object) -> list[int]:
    data = Dataset(location, SCHEMA, ReadOptions.model_validate(options))
    return [u for b in data.iterate(700) for u in b.values.tolist()]


def test_files_directories_globs_and_date_trees(s3: str) -> None:
    assert users(f"{s3}/20200401/00/part-0") == list(range(1000))
    assert users(f"{s3}/20200401/01") == list(range(2000, 4000))
    assert users(s3) == list(range(6000))
    assert users(f"{s3}/*/*/part-*") == list(range(6000))
    tree = f"{s3}/{{date}}/{{hour}}"
    assert users(tree, start="20200401/00", end="20200401/01", donefile="donefile") == list(range(4000))
    with pytest.raises(NotFound, match="20200401/02/donefile: not found"):
        users(tree, start="20200401/00", end="20200401/02", donefile="donefile")


def test_paths_keep_their_protocol(s3: str) -> None:
    assert resolve(f"{s3}/20200401/00")[0].path == "s3://logs/clicks/20200401/00/part-0"


def test_resuming(s3: str) -> None:
    data = Dataset(s3, SCHEMA, ReadOptions(shuffle_rows=500), seed=1)
    whole = [b.values.tolist() for b in data.iterate(700)]
    with data.iterate(700) as batches:
        for _ in range(4):
            next(batches)
        state = batches.state()
    assert [b.values.tolist() for b in data.iterate(700, start=state)] == whole[4:]


def test_what_is_not_there(s3: str) -> None:
    with pytest.raises(NotFound, match="s3://logs/clicks/nothing"):
        resolve(f"{s3}/nothing")
    with pytest.raises(NotFound, match="s3://nobucket/x"):
        resolve("s3://nobucket/x")


@pytest.mark.parametrize(
    ("location", "module", "extra"), [("s3://b/k", "s3fs", "s3"), ("hdfs://n:1/k", "hdfs_native", "hdfs")]
)
def test_a_missing_extra_is_named(location: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'elasticctr\[{extra}\]'"):
        resolve(location)


class HeldBytes:
    """What is inside a file of the HDFS client, without a namenode."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.read, self.tell = self._file.read, self._file.tell

    def seek(self, place: int) -> None:
        self._file.seek(place)

    def file_length(self) -> int:
        return len(self._file.getbuffer())


def test_a_file_of_the_hdfs_client_is_read_like_any_other() -> None:
    """Its reader has no readinto, and its seek returns nothing."""
    data = bytes(range(256)) * 100

    class Client:
        def open(self, path: str, mode: str) -> Any:
            return hdfs_native.FileReader(cast(Any, HeldBytes(data)))

    opened: Any = open_file(Client(), "hdfs", "hdfs://n/x")
    with opened as file:
        assert file.read(3) == data[:3] and file.tell() == 3
        assert file.seek(-2, 2) == len(data) - 2 and file.read() == data[-2:]
        file.seek(0)
        buffer = bytearray(1000)
        assert file.readinto(buffer) == 1000 and bytes(buffer) == data[:1000]
        assert file.read() == data[1000:]


def test_hdfs_without_a_namenode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(Unavailable, match=r"no namenode answers at 127\.0\.0\.1:1"):
        resolve("hdfs://127.0.0.1:1/logs")
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR"):
        resolve("hdfs:///logs")
