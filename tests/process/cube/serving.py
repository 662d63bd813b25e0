"""Shared by the server's tests: versions whose rows are a function of (version, feasign), real server processes, and
clients written from docs/formats/wire.md alone."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.net.access import write_token

MAGIC = bytes([0xEC, 0x57, 0x43, 0x01])
HEADER = struct.Struct("<4sIQQQIBBH")
HELLO, PING, LOOKUP, DESCRIBE = 1, 2, 3, 4
DIM = 10


def rows_of(version: int, feasigns: NDArray[np.uint64], dim: int = DIM) -> NDArray[np.float32]:
    """Row of a feasign in a version: whole numbers that name both, so that any mix shows."""
    low = (feasigns % np.uint64(1_000_003)).astype(np.float32)
    return (low[:, None] + np.arange(dim, dtype=np.float32) * version).astype(np.float32)


def write_version(
    data: Path,
    version: int,
    feasigns: NDArray[np.uint64],
    *,
    model: str = "ctr",
    tables: tuple[str, ...] = ("embedding",),
    parent: int = 0,
    gone: NDArray[np.uint64] | None = None,
    shard: int = 0,
    shards: int = 1,
    dim: int = DIM,
) -> Path:
    """A shard's directory as an agent leaves it."""
    folder = data / model / str(version)
    folder.mkdir(parents=True)
    files = []
    for table in tables:
        builder = _native.CubeBuilder(
            f"{model}/{table}", "delta" if parent else "base", "fp32", dim, 4 * dim, "buckets", shards, version, parent,
            str(folder), 1 << 26,
        )  # fmt: skip
        builder.add(feasigns, rows_of(version, feasigns, dim).view(np.uint8))
        if gone is not None:
            builder.add_gone(gone)
        paths = [str(folder / (f"{table}.cube" if i == shard else f"other-{i}.cube")) for i in range(shards)]
        builder.finish(paths)
        body = Path(paths[shard]).read_bytes()
        digest = hashlib.sha256(body).hexdigest()
        files.append({"table": table, "name": f"{table}.cube", "bytes": len(body), "sha256": digest, "rows": 1})
    described = {"format": 1, "model": model, "version": version, "kind": "delta" if parent else "base"}
    described |= {"parent": parent, "shard": shard, "shards": shards, "sharding": "buckets", "files": files}
    (folder / "shard.json").write_text(json.dumps(described))
    return folder


@dataclass(frozen=True)
class Answer:
    id: int
    version: int
    status: int
    detail: int
    time_ms: int
    body: bytes

    @property
    def active(self) -> int:
        return int(struct.unpack_from("<Q", self.body, 8)[0])

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        count, row_bytes = struct.unpack_from("<II", self.body)
        bits = np.frombuffer(self.body, np.uint8, (count + 63) // 64 * 8, 16)
        found = np.unpackbits(bits, bitorder="little")[:count].astype(bool)
        floats = np.frombuffer(self.body, np.float32, count * row_bytes // 4, 16 + len(bits))
        return floats.reshape(count, row_bytes // 4), found


class Wire:
    """A blocking connection that speaks frames."""

    def __init__(self, port: int, token: str | None = None, unix: Path | None = None) -> None:
        if unix is None:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(60)
            self.socket.connect(str(unix))
        self._ids = 0
        if token is not None:
            assert self.ask(HELLO, token.encode()).status == 0

    def send(self, opcode: int, body: bytes = b"", *, table: str = "", version: int = 0, time_ms: int = 0) -> int:
        self._ids += 1
        name = _native.xxh64(table.encode()) if table else 0
        self.socket.sendall(HEADER.pack(MAGIC, len(body), self._ids, version, name, time_ms, opcode, 0, 0) + body)
        return self._ids

    def receive(self) -> Answer:
        magic, size, id, version, _, time_ms, _, status, detail = HEADER.unpack(self._exactly(HEADER.size))
        assert magic == MAGIC
        return Answer(id, version, status, detail, time_ms, self._exactly(size))

    def ask(self, opcode: int, body: bytes = b"", *, table: str = "", version: int = 0, time_ms: int = 0) -> Answer:
        id = self.send(opcode, body, table=table, version=version, time_ms=time_ms)
        answer = self.receive()
        assert answer.id == id
        return answer

    def lookup(self, feasigns: NDArray[np.uint64], table: str = "ctr/embedding", version: int = 0) -> Answer:
        return self.ask(LOOKUP, feasigns.tobytes(), table=table, version=version)

    def is_closed(self, timeout_s: float = 60) -> bool:
        """Whether the server ends the connection; discards what it still sends."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("closed")
            parts += part
        return bytes(parts)


class ServerProcess:
    """`elasticctr cube server` as a separate process, on a free port."""

    def __init__(self, data: Path, *arguments: str, token: str | None = None) -> None:
        self.data = data
        self.token = token
        command = [sys.executable, "-m", "elasticctr", "cube", "server", "--port", "0", "--data", str(data), "--json"]
        if token is not None:
            write_token(data.parent / "token", token, overwrite=True)
            command += ["--token-file", str(data.parent / "token")]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server ended: {self.process.communicate()[1].decode()}")
        self.listening: dict[str, Any] = json.loads(line)
        self.port: int = self.listening["port"]

    def wire(self) -> Wire:
        return Wire(self.port, self.token)

    def http(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = dict(headers or {})
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, text, sent)
        answer = connection.getresponse()
        got = answer.read()
        connection.close()
        is_json = "json" in (answer.headers.get("Content-Type") or "")
        return answer.status, json.loads(got) if is_json and got else got.decode()

    def load(self, version: int, model: str = "ctr", timeout_s: float = 60) -> dict[str, Any]:
        """Loads a version and waits until it is resident or has failed."""
        status, answer = self.http("POST", "/v1/load", {"model": model, "version": version})
        assert status in (200, 202), answer
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            _, state = self.http("GET", "/v1/status")
            for entry in (m for m in state["models"] if m["name"] == model):
                for found in (v for v in entry["versions"] if v["version"] == version):
                    if found["state"] != "loading":
                        return dict(found)
            time.sleep(0.01)
        raise AssertionError(f"version {version} neither ready nor failed")

    def activate(self, version: int, model: str = "ctr") -> None:
        assert self.load(version, model)["state"] == "ready"
        status, answer = self.http("POST", "/v1/activate", {"model": model, "version": version})
        assert status == 200, answer

    def rss_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors.decode()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def feasigns_of(count: int, seed: int = 0) -> NDArray[np.uint64]:
    """Different ones, many above 2**63."""
    rng = np.random.default_rng(seed)
    return np.unique(rng.integers(0, 2**64 - 1, count, np.uint64))
