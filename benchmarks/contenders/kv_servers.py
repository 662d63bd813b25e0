"""The lookup servers that benchmarks/cube.py compares, on core 0, and the programs that load them, on core 1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from measure import WORK

FOLDER = WORK / "cube"
SOURCES = Path(__file__).resolve().parent
TABLE = "bench/rows"


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The mixer of kv_load.cc, on which rows and feasigns depend."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def make_rows(keys: int, row_bytes: int, small: bool = False) -> Path:
    """A server's data directory; kept between runs. `small`: feasigns 0, 1, …, which redis-benchmark requests."""
    data = FOLDER / f"rows-{keys}-{row_bytes}{'-small' if small else ''}"
    folder = data / "bench" / "1"
    if (folder / "shard.json").exists():
        return data
    shutil.rmtree(data, ignore_errors=True)
    folder.mkdir(parents=True)
    builder = _native.CubeBuilder(TABLE, "base", "raw", 0, row_bytes, "buckets", 1, 1, 0, str(folder), 1 << 30, keys)
    words = np.arange(row_bytes // 8, dtype=np.uint64)
    for start in range(0, keys, 500_000):
        numbers = np.arange(start, min(start + 500_000, keys), dtype=np.uint64)
        feasigns = numbers if small else mix(numbers + np.uint64(1))
        builder.add(feasigns, mix(feasigns[:, None] + words).view(np.uint8))
    path = folder / "rows.cube"
    builder.finish([str(path)])
    file = {"table": "rows", "name": "rows.cube", "bytes": path.stat().st_size, "sha256": "", "rows": keys}
    shard = {"format": 1, "model": "bench", "version": 1, "kind": "base", "parent": 0, "shard": 0, "shards": 1}
    (folder / "shard.json").write_text(json.dumps({**shard, "files": [file]}))
    return data


def find_redis(program: str) -> Path:
    """Redis from PATH, or else Debian's package: installed, or unpacked below .bench if installing is not allowed."""
    found = shutil.which(program)
    if found:
        return Path(found)
    unpacked = FOLDER / "redis" / "usr" / "bin" / program
    if not unpacked.exists():
        print("fetching Debian's redis-server and redis-tools …", flush=True)
        install = ["apt-get", "install", "-y", "-q", "redis-server", "redis-tools"]
        if os.geteuid() == 0 and subprocess.run(install, capture_output=True).returncode == 0 and shutil.which(program):
            return Path(str(shutil.which(program)))
        (FOLDER / "redis").mkdir(parents=True, exist_ok=True)
        packages = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "liblua5.1-0", "lua-cjson", "lua-bitop"]
        subprocess.run(["apt-get", "download", *packages], cwd=FOLDER / "redis", check=True)
        for package in (FOLDER / "redis").glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, FOLDER / "redis"], check=True)
    return unpacked


def build(name: str, *flags: str) -> Path:
    """A program of contenders/, compiled for this machine; again when its source is newer."""
    source, program = SOURCES / f"{name}.cc", FOLDER / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, "-std=c++20", "-O2", "-march=native", *flags, source, "-o", program], check=True)
    return program


@dataclass(frozen=True)
class Result:
    keys_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    cpu_ns_per_key: float
    busy: float  # share of its core the server used
    wrong: int

    def line(self) -> str:
        latency = f"p50 {self.p50_us:7.1f} p99 {self.p99_us:7.1f} p99.9 {self.p999_us:7.1f} us"
        return (
            f"{self.keys_s / 1e6:6.2f} M keys/s, {latency}, {self.cpu_ns_per_key:6.1f} ns CPU/key, core {self.busy:.0%}"
        )


class Server:
    """A server process on core 0."""

    def __init__(self, command: list[str], port: int | None = None) -> None:
        environ = os.environ | {"LD_LIBRARY_PATH": str(FOLDER / "redis/usr/lib/x86_64-linux-gnu")}
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )
        assert self.process.stdout is not None
        self.port = json.loads(self.process.stdout.readline())["port"] if port is None else port

    def cpu_ns(self) -> int:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def rss_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


class CubeServer(Server):
    def __init__(self, data: Path, python: Path = Path(sys.executable)) -> None:
        command = [str(python), "-m", "elasticctr", "cube", "server", "--port", "0", "--data", str(data)]
        super().__init__([*command, "--activate", "newest", "--json"])

    def __enter__(self) -> CubeServer:
        return self

    def memory_bytes(self) -> float:
        """Memory of the rows and their index."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"GET /v1/status HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: connection.recv(65536), b""))
        return float(json.loads(text.partition(b"\r\n\r\n")[2])["memory_bytes"])


class RedisServer(Server):
    def __init__(
        self, load: LoadGenerator, keys: int, row_bytes: int, io_threads: int = 1, small: bool = False
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = {
            "--port": port,
            "--bind": "127.0.0.1",
            "--save": "",
            "--appendonly": "no",
            "--io-threads": io_threads,
        }
        options |= {"--protected-mode": "no", "--loglevel": "warning"}
        super().__init__([str(find_redis("redis-server")), *(str(x) for pair in options.items() for x in pair)], port)
        for _ in range(200):
            try:
                self.memory_bytes()
                break
            except OSError:
                time.sleep(0.05)
        load.fill(self, keys, row_bytes, small)

    def __enter__(self) -> RedisServer:
        return self

    def memory_bytes(self) -> float:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"INFO memory\r\nQUIT\r\n")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        used = next(line for line in text.splitlines() if line.startswith("used_memory:"))
        return float(used.partition(":")[2])


class LoadGenerator:
    def __init__(self) -> None:
        self.program = build("kv_load")

    def fill(self, server: Server, keys: int, row_bytes: int, small: bool) -> None:
        arguments = ["127.0.0.1", str(server.port), str(keys), str(row_bytes), "small" if small else "random"]
        command = ["taskset", "-c", "1", str(self.program), "fill", *arguments]
        subprocess.run(command, check=True)

    def run(
        self,
        server: Server,
        protocol: str,
        keys: int,
        row_bytes: int,
        connections: int,
        pipeline: int,
        batch: int,
        kind: str,
        rate: float,
        seconds: float,
    ) -> Result:
        """Makes one measurement. `rate` 0: as fast as the server answers."""
        numbers = (server.port, keys, row_bytes, connections, pipeline, batch)
        arguments = [protocol, "127.0.0.1", *(str(n) for n in numbers), kind, str(rate), "0.2", str(seconds)]
        process = subprocess.Popen(
            ["taskset", "-c", "1", str(self.program), "run", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"KV_TABLE": str(_native.xxh64(TABLE.encode()))},
        )
        assert process.stdin is not None and process.stdout is not None
        marks = []
        for mark in ("B\n", "E\n"):
            if process.stdout.readline() != mark:
                raise SystemExit(f"the load generator exited with status {process.wait()}")
            marks.append((time.monotonic(), server.cpu_ns()))
            process.stdin.write("g")
            process.stdin.flush()
        got = json.loads(process.stdout.readline())
        process.stdin.close()
        process.stdout.close()
        process.wait()
        (start, cpu), (end, cpu_end) = marks
        busy_ns = cpu_end - cpu
        return Result(
            got["keys_s"], got["p50_us"], got["p99_us"], got["p999_us"], busy_ns / max(got["keys"], 1),
            busy_ns * 1e-9 / (end - start), got["wrong"],
        )  # fmt: skip


class HashMap:
    """boost::unordered_flat_map over the same rows, in one process."""

    def __init__(self, keys: int, row_bytes: int, batch: int, kind: str = "uniform") -> None:
        import cmeel

        prefix = Path(cmeel.__file__).resolve().parent.parent / "cmeel.prefix" / "include"
        self.program = build("kv_hashmap", "-isystem", str(prefix))
        self.arguments = [str(keys), str(row_bytes), str(batch), kind]

    def keys_s(self, seconds: float) -> float:
        command = ["taskset", "-c", "0", str(self.program), *self.arguments, str(seconds)]
        return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["keys_s"])
