"""The servers that benchmarks/predict.py compares, each with all it needs on core 0; the load generator has core 1."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from contenders.environments import prepare
from contenders.kv_servers import build, find_redis
from contenders.predict_data import FOLDER, MODEL, SPARSE, VALUES_PER_SLOT, value_text
from measure import WORK

HERE = Path(__file__).resolve().parent
VENVS = WORK / "venvs"
READY_S = 120.0
PEERS = {"fastapi": ("async", "blocking"), "bentoml": ("plain", "batched"), "rayserve": ("plain", "batched")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A program and everything it starts, on core 0, in its own session."""

    def __init__(self, command: list[str], log: str, **environ: str) -> None:
        self.log = FOLDER / "logs" / f"{log}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["taskset", "-c", "0", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"} | environ,
            )

    def check(self) -> None:
        if self.process.poll() is not None:
            last = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise SystemExit(f"{self.log.stem} ended with status {self.process.returncode}: {' / '.join(last)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        # Remaining child processes are still in its session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Redis(Process):
    """Debian's Redis with a row under `slot:text`; no persistence."""

    def __init__(self) -> None:
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        library = {"LD_LIBRARY_PATH": str(WORK / "cube/redis/usr/lib/x86_64-linux-gnu")}
        super().__init__([str(find_redis("redis-server")), *options, "--protected-mode", "no"], "redis", **library)
        for _ in range(200):
            self.check()
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self._fill()

    def _fill(self) -> None:
        weights = np.load(FOLDER / "weights.npy")
        width = weights.shape[1] * 4
        rows = weights.tobytes()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            at = 0
            for slot, name in enumerate(SPARSE):
                for start in range(0, VALUES_PER_SLOT, 5000):
                    numbers = range(start, min(start + 5000, VALUES_PER_SLOT))
                    parts = []
                    for i in numbers:
                        key = f"{name}:{value_text(slot, i)}".encode()
                        parts.append(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, width))
                        parts.append(rows[at : at + width] + b"\r\n")
                        at += width
                    connection.sendall(b"".join(parts))
                    left = 5 * len(numbers)  # +OK
                    while left:
                        left -= len(connection.recv(min(left, 1 << 16)))

    def __enter__(self) -> Redis:
        return self


class Server(Process):
    """A prediction server. `path` accepts requests; `wraps`: it accepts a list of them."""

    def __init__(self, command: list[str], name: str, port: int, path: str, wraps: bool = False) -> None:
        self.port, self.path, self.wraps = port, path, wraps
        super().__init__(command, name, PYTHONPATH="" if name.split()[0] in PEERS else os.environ.get("PYTHONPATH", ""))

    def __enter__(self) -> Server:
        return self

    def ask(self, request: dict[str, Any]) -> list[float]:
        body = json.dumps([request] if self.wraps else request).encode()
        head = {"Content-Type": "application/json"}
        call = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.path}", body, head)
        with urllib.request.urlopen(call, timeout=30) as answer:
            got = json.load(answer)
        scores: list[float] = (got[0] if self.wraps else got)["scores"]
        return scores

    def wait(self, request: dict[str, Any]) -> None:
        ends = time.monotonic() + READY_S
        while True:
            self.check()
            try:
                self.ask(request)
                return
            except (OSError, urllib.error.URLError, ValueError) as e:
                if time.monotonic() > ends:
                    raise SystemExit(f"{self.log.stem} does not answer: {e}; see {self.log}") from None
                time.sleep(0.1)


def start_ours(python: Path = Path(sys.executable), name: str = "elasticctr") -> Server:
    port = free_port()
    command = [str(python), "-m", "elasticctr", "serve", "--repo", str(FOLDER / "repo"), "--model", MODEL]
    command += ["--port", str(port), "--grpc-port", "-1", "--drain", "0", "--index-dir", str(FOLDER / f"index-{name}")]
    return Server(command, name, port, f"/v1/models/{MODEL}:predict")


def start_peer(name: str, variant: str, redis: Redis) -> Server:
    port = free_port()
    python = prepare(VENVS, name)
    command = [str(python), str(HERE / f"predict_{name}.py"), str(FOLDER), str(port), str(redis.port), variant]
    wraps = name == "bentoml" and variant == "batched"
    return Server(command, f"{name} {variant}", port, "/predict_batched" if wraps else "/predict", wraps)


def has_environment(name: str) -> bool:
    return (VENVS / name / "installed").exists()


@dataclass(frozen=True)
class Result:
    requests_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    failed: int
    in_time_s: float = 0.0  # answers within the deadline, per second
    refused: int = 0  # 429
    refused_p99_us: float = 0.0

    def line(self, size: int) -> str:
        latency = f"p50 {self.p50_us / 1e3:8.3f} p99 {self.p99_us / 1e3:8.3f} p99.9 {self.p999_us / 1e3:8.3f} ms"
        return f"{self.requests_s:10,.0f} requests/s {self.requests_s * size:12,.0f} predictions/s, {latency}"


class LoadGenerator:
    def __init__(self) -> None:
        self._program = build("http_load")

    def run(
        self, server: Server, size: int, connections: int, rate: float, seconds: float, deadline_ms: float = 0.0
    ) -> Result:
        """Makes one measurement. `rate` 0: as fast as the server answers."""
        bodies = FOLDER / f"bodies-{size}{'-wrapped' if server.wraps else ''}.txt"
        if not bodies.exists():
            lines = (FOLDER / f"bodies-{size}.txt").read_text().splitlines()
            bodies.write_text("".join(f"[{line}]\n" for line in lines))
        numbers = [str(connections), str(rate), "0.3", str(seconds), str(deadline_ms)]
        command = [str(self._program), "127.0.0.1", str(server.port), server.path, str(bodies), *numbers]
        done = subprocess.run(
            ["taskset", "-c", "1", *command], input="gg", stdout=subprocess.PIPE, text=True, timeout=seconds + 60
        )
        server.check()
        if done.returncode != 0:
            raise SystemExit(f"the load generator exited with status {done.returncode}")
        got = json.loads(done.stdout.splitlines()[-1])
        failed = sum(got["errors"].values())
        refused = got["in_time_s"], got["refused"], got["refused_p99_us"]
        return Result(got["requests_s"], got["p50_us"], got["p99_us"], got["p999_us"], failed, *refused)
