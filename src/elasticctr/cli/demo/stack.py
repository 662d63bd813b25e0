"""The serving side of the demo as processes of this machine: two shards with two replicas each, and a transfer.

Every process is the command a user would start; its output is in DIR/cube/logs. All are ended when the demo ends,
however it ends.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, InternalError
from elasticctr.net.access import make_token, write_token
from elasticctr.net.client import Peer

T = TypeVar("T")
SHARDS = REPLICAS = 2
WAIT_S = 60.0


class Stack:
    def __init__(self, directory: Path, repository: Path, model: str) -> None:
        self.model = model
        self._directory = directory
        self._logs = directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.token = make_token()
        self._token_file = directory / "token"
        write_token(self._token_file, self.token, overwrite=True)
        self._repository = repository
        ports = _free_ports(2 * SHARDS * REPLICAS + 1)
        self.servers = [[f"127.0.0.1:{ports.pop()}" for _ in range(REPLICAS)] for _ in range(SHARDS)]
        self._agents = [[f"127.0.0.1:{ports.pop()}" for _ in range(REPLICAS)] for _ in range(SHARDS)]
        self.transfer = f"127.0.0.1:{ports.pop()}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Servers and agents, then transfer; returns when all answer."""
        shared = ["--token-file", str(self._token_file)]
        for shard in range(SHARDS):
            for replica in range(REPLICAS):
                name, data = f"{shard}-{replica}", self._directory / "data" / f"{shard}-{replica}"
                data.mkdir(parents=True, exist_ok=True)
                server, agent = self.servers[shard][replica], self._agents[shard][replica]
                self._run(f"server-{name}", "server", "--port", _port(server), "--data", str(data), *shared)
                beside = ["--endpoint", f"http://{server}", "--data", str(data), "--shard", f"{shard}/{SHARDS}"]
                self._run(f"agent-{name}", "agent", "--port", _port(agent), *beside, *shared)
        for address in [address for group in (*self.servers, *self._agents) for address in group]:
            self.wait(partial(self.ask, address, "/v1/status"), f"{address} to answer")
        config = self._directory / "transfer.yaml"
        config.write_text(yaml.safe_dump(self._settings(), sort_keys=False), encoding="utf-8")
        self._run("transfer", "transfer", "--config", str(config), "--port", _port(self.transfer))
        self.wait(lambda: self.ask(self.transfer, "/v1/status"), "transfer to answer")

    def write_client_settings(self, path: Path) -> None:
        settings: dict[str, Any] = {"model": self.model, "shards": self.servers}
        settings["token_file"] = str(self._token_file.absolute())
        # A laptop that trains at the same time may make an answer late; the demo counts errors, not slow answers.
        settings |= {"timeout_ms": 2000, "connect_ms": 500}
        path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def wait_live(self, version: int) -> float:
        """Until every server answers from `version`. Returns the seconds it took."""
        started = time.monotonic()
        for address in [address for group in self.servers for address in group]:
            self.wait(partial(self._answers_from, address, version), f"{address} to answer from version {version}")
        return time.monotonic() - started

    def ask(self, address: str, path: str) -> dict[str, Any]:
        with Peer(f"http://{address}", self.token) as peer:
            return peer.get(path)

    def wait(self, check: Callable[[], T], what: str) -> T:
        deadline, last = time.monotonic() + WAIT_S, ""
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise InternalError(f"{name} ended with status {process.returncode}: {self._tail(name)}")
            try:
                answer = check()
                if answer:
                    return answer
            except ElasticCTRError as e:
                last = f": {e}"
            time.sleep(0.02)
        raise DeadlineExceeded(f"waited {WAIT_S:.0f} s for {what}{last}; look into {self._logs}")

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers_from(self, address: str, version: int) -> bool:
        models = self.ask(address, "/v1/status")["models"]
        return any(one["name"] == self.model and one["active"] == version for one in models)

    def _settings(self) -> dict[str, Any]:
        pairs = zip(self.servers, self._agents, strict=True)
        shards = [
            [{"agent": f"http://{a}", "server": f"http://{s}"} for s, a in zip(servers, agents, strict=True)]
            for servers, agents in pairs
        ]
        return {
            "repository": str(self._repository.absolute()),
            "models": [self.model],
            "state": str((self._directory / "transfer").absolute()),
            "token_file": str(self._token_file.absolute()),
            "poll_s": 0.2,
            "shards": shards,
        }

    def _run(self, name: str, *arguments: str) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "elasticctr", "cube", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C is for the demo, which ends them in order.
                start_new_session=True,
            )

    def _tail(self, name: str) -> str:
        lines = (self._logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _free_ports(count: int) -> list[str]:
    sockets: Sequence[socket.socket] = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
