"""Against a real HTTP server that misbehaves on request."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, DataError, DeadlineExceeded, NotFound, Unauthorized, Unavailable
from elasticctr.storage import resolve

DATA = b"".join(b"click:%d u:%d\n" % (i % 2, i) for i in range(50_000))
SCHEMA = Schema.model_validate({"slots": [{"kind": "sparse", "name": "u"}]})
FAST = {"timeout_s": 0.5, "retries": 3}


class Handler(http.server.BaseHTTPRequestHandler):
    """/log: the data. /cut: drops the connection every 200 kB. /norange: so too, and ignores ranges."""

    files: dict[str, bytes]
    hits: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path
        self.hits.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        gets = sum(hit.startswith(f"GET {path}") for hit in self.hits)
        if path == "/headless" and not with_body:
            return self.send_error(405)
        if path == "/secret":
            return self.send_error(403)
        if path == "/broken" or (path == "/flaky" and gets < 3 and with_body):
            return self.send_error(503)
        if path == "/slow" and with_body:
            threading.Event().wait(2)
            return None
        data = self.files.get(path.strip("/"), self.files["log"] if path[1:] in _SPECIAL else None)
        if data is None:
            return self.send_error(404)
        start = 0
        wanted = self.headers.get("Range")
        if wanted and path != "/norange":
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{gets if path == "/changing" and with_body else "one"}"')
        self.end_headers()
        if with_body:
            cut = 200_000 if path in ("/cut", "/norange", "/changing") else len(data)
            # Each try of a server without ranges comes further, or it would never end.
            self.wfile.write(data[start : start + cut * (gets if path == "/norange" else 1)])
        return None

    def log_message(self, *args: object) -> None:
        pass


_SPECIAL = ("headless", "cut", "norange", "changing", "flaky", "slow")


@pytest.fixture
def server() -> Iterator[str]:
    Handler.files = {"log": DATA, "log.gz": gzip.compress(DATA)}
    Handler.hits = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def read(url: str, **options: object) -> bytes:
    with resolve(url, ReadOptions.model_validate({**FAST, **options}))[0].open() as stream:
        parts = []
        buffer = bytearray(100_000)
        while count := stream.read_into(memoryview(buffer)):
            parts.append(bytes(buffer[:count]))
        return b"".join(parts)


@pytest.mark.parametrize("name", ["log", "log.gz", "headless", "cut", "norange", "flaky"])
def test_all_bytes_arrive(server: str, name: str) -> None:
    assert read(f"{server}/{name}") == DATA


def test_a_broken_connection_is_resumed_where_it_broke(server: str) -> None:
    read(f"{server}/cut")
    gets = [hit for hit in Handler.hits if hit.startswith("GET")]
    assert gets[:3] == ["GET /cut", "GET /cut bytes=200000-", "GET /cut bytes=400000-"]


def test_a_dataset_over_http(server: str) -> None:
    data = Dataset([f"{server}/log", f"{server}/log.gz"], SCHEMA, ReadOptions.model_validate(FAST))
    users = [u for b in data.iterate(4096) for u in b.values.tolist()]
    assert users == [*range(50_000), *range(50_000)]
    with data.iterate(4096) as batches:
        for _ in range(15):
            next(batches)
        state = batches.state()
    rest = [u for b in data.iterate(4096, start=state) for u in b.values.tolist()]
    assert rest == users[15 * 4096 :]


def test_parquet_over_http(server: str, tmp_path: Path) -> None:
    table = pa.table({"click": [0, 1, 1], "u": [1, 2, 3]})
    pq.write_table(table, tmp_path / "t")
    Handler.files["t.parquet"] = (tmp_path / "t").read_bytes()
    schema = Schema.model_validate({**SCHEMA.model_dump(), "format": "parquet"})
    assert next(iter(Dataset(f"{server}/t.parquet", schema))).values.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nothing", NotFound, "no such file"),
        ("secret", Unauthorized, "403"),
        ("broken", Unavailable, "503"),
        ("slow", DeadlineExceeded, "no answer within 0.2 s"),
        ("changing", DataError, "changed on the server"),
        ("part-*", ConfigError, "globs do not work over http"),
    ],
)
def test_failures(server: str, name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read(f"{server}/{name}", retries=1, timeout_s=0.2 if name == "slow" else 60)
    assert f"{server}/{name}" in str(caught.value)


def test_nobody_listens() -> None:
    with pytest.raises(Unavailable, match=r"cannot be fetched: .*refused"):
        read("http://127.0.0.1:1/log", retries=0)
