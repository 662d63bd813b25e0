"""Downloads resume after cuts, replace damaged parts, and keep their rate and deadline."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.fakes import TOKEN, FileHost

from elasticctr.cube.agent.fetch import Fetcher, RateLimit
from elasticctr.cube.agent.sources import HttpSource, ShardSource
from elasticctr.cube.shared.listing import CubeFile
from elasticctr.errors import Corruption, DeadlineExceeded, NotFound, Unauthorized, Unavailable
from elasticctr.net.client import make_client
from elasticctr.obs.watch import Watch

DATA = hashlib.shake_128(b"index").digest(400_000)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FileHost]:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/t.cube").write_bytes(DATA)
    made = FileHost(tmp_path / "host")
    yield made
    made.stop()


def listed(data: bytes = DATA) -> CubeFile:
    return CubeFile.model_validate(
        {"table": "t", "name": "t.cube", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": 1}
    )


def source(host: FileHost, token: str = TOKEN) -> ShardSource:
    return HttpSource(host.url, make_client(token, timeout_s=60))


def fetch(host: FileHost, folder: Path, fetcher: Fetcher | None = None) -> Fetcher:
    fetcher = fetcher or Fetcher(RateLimit(None))
    fetcher.fetch_file(source(host), listed(), folder, Watch(60))
    assert (folder / "t.cube").read_bytes() == DATA
    assert not (folder / "t.cube.part").exists()
    return fetcher


def test_a_cut_connection_is_resumed_at_the_byte_it_reached(host: FileHost, tmp_path: Path) -> None:
    host.cut_after = 150_000
    fetcher = fetch(host, tmp_path)
    assert [wanted for _, wanted in host.requests] == ["", "bytes=150000-", "bytes=300000-"]
    assert fetcher.bytes_fetched == len(DATA)


def test_a_host_without_ranges_costs_time_but_not_correctness(host: FileHost, tmp_path: Path) -> None:
    (tmp_path / "t.cube.part").write_bytes(DATA[:1000])
    host.ignore_range = True
    fetch(host, tmp_path)


def test_a_part_longer_than_the_file_is_fetched_again(host: FileHost, tmp_path: Path) -> None:
    (tmp_path / "t.cube.part").write_bytes(DATA + b"x")
    fetch(host, tmp_path)


def test_a_damaged_part_is_found_and_fetched_again(host: FileHost, tmp_path: Path) -> None:
    (tmp_path / "t.cube.part").write_bytes(b"\0" + DATA[1:1000])
    assert fetch(host, tmp_path).refetched == 1


def test_a_bit_flipped_once_is_repaired(host: FileHost, tmp_path: Path) -> None:
    flips = iter([True])

    def flip(_: str, body: bytes) -> bytes:
        return body[:77] + bytes([body[77] ^ 1]) + body[78:] if next(flips, False) else body

    host.fault = flip
    assert fetch(host, tmp_path).refetched == 1


def test_a_bit_flipped_always_is_corruption_and_leaves_nothing(host: FileHost, tmp_path: Path) -> None:
    host.fault = lambda _, body: bytes([body[0] ^ 128]) + body[1:]
    with pytest.raises(Corruption, match="arrived damaged 3 times"):
        fetch(host, tmp_path)
    assert len(host.requests) == 3
    assert not list(tmp_path.glob("t.cube*"))


def test_a_truncated_source_is_corruption(host: FileHost, tmp_path: Path) -> None:
    host.fault = lambda _, body: body[:-1]
    with pytest.raises(Corruption, match="399999 of the 400000"):
        fetch(host, tmp_path)


def test_a_longer_source_is_corruption_and_never_fills_the_disk(host: FileHost, tmp_path: Path) -> None:
    host.fault = lambda _, body: body * 50
    with pytest.raises(Corruption, match="the source has more than"):
        fetch(host, tmp_path)
    assert not list(tmp_path.glob("t.cube*"))


def test_a_missing_file_and_a_wrong_token_are_distinguished(host: FileHost, tmp_path: Path) -> None:
    fetcher = Fetcher(RateLimit(None))
    with pytest.raises(Unauthorized):
        fetcher.fetch_file(source(host, "wrong token"), listed(), tmp_path, Watch(60))
    (host.root / "t.cube").unlink()
    with pytest.raises(NotFound):
        fetcher.fetch_file(source(host), listed(), tmp_path, Watch(60))


def test_a_host_that_is_gone_is_given_up_after_some_attempts(host: FileHost, tmp_path: Path) -> None:
    host.stop(wait=True)
    with pytest.raises(Unavailable):
        Fetcher(RateLimit(None), attempts=3).fetch_file(source(host), listed(), tmp_path, Watch(60))


def test_the_rate_is_kept(host: FileHost, tmp_path: Path) -> None:
    began = time.monotonic()
    fetch(host, tmp_path, Fetcher(RateLimit(1_000_000)))
    assert time.monotonic() - began > 0.25


def test_a_deadline_ends_a_slow_download(host: FileHost, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded):
        Fetcher(RateLimit(1000)).fetch_file(source(host), listed(), tmp_path, Watch(0.3))
