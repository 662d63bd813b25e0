"""Real cube processes on this machine: started on free ports, logged to files, ended by process id.

    with Cluster(tmp_path, shards=2, replicas=2) as cluster:
        cluster.start()
        cluster.transfer.kill()
        cluster.start_transfer()
        cluster.wait_live(7)

All waits are bounded; a process that ends by itself is reported with the end of its log.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml

from elasticctr.errors import ElasticCTRError
from elasticctr.net.access import write_token
from elasticctr.net.client import Peer
from tests.cluster.certificate import Authority, flags_of

T = TypeVar("T")
TOKEN = "a secret of the test cluster"
# Nine processes that start at once on a busy machine take their time.
START_S = 180.0


# Ports of this test process alone, below those the system gives to anyone: one that was free a moment ago stays free.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw9").removeprefix("gw")) % 10
_FIRST = 11_000 + 2_000 * _WORKER
_ports = itertools.islice(itertools.cycle(range(_FIRST, _FIRST + 2_000)), os.getpid() % 2_000, None)


def free_port() -> int:
    while True:
        port = next(_ports)
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.bind(("127.0.0.1", port))
            return port


def wait_until(check: Callable[..., T], what: str, timeout_s: float = 120.0, every_s: float = 0.05) -> T:
    """The first true answer of `check`; errors of the tree count as not yet."""
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = check()
            if last:
                return last
        except ElasticCTRError as e:
            last = e
        time.sleep(every_s)
    raise AssertionError(f"{what}: not within {timeout_s:g} s; last seen: {last!r}")


class Process:
    """One `elasticctr …` command. Its output is in `log`."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environ: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "elasticctr", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | (environ or {}),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        self._process.wait(60)

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; -9 if that is ignored. Returns the exit status."""
        self._signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def pause(self) -> None:
        """SIGSTOP: it hangs, its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def check_running(self) -> None:
        if not self.is_running:
            raise AssertionError(f"{self.name} ended with {self.exit_status}:\n{self.text()[-3000:]}")

    def _signal(self, sig: signal.Signals) -> None:
        if self.is_running:
            self._process.send_signal(sig)


class Instance:
    """One replica of one shard: a server and its agent, on ports that stay the same across restarts."""

    def __init__(self, cluster: Cluster, shard: int, replica: int) -> None:
        self.shard, self.replica = shard, replica
        self._cluster = cluster
        self.name = f"{shard}-{replica}"
        self.data = cluster.root / "data" / self.name
        self.server_port, self.agent_port = free_port(), free_port()
        self.host = "127.0.0.1"
        self.prefix: Sequence[str] = ()  # starts its processes elsewhere, such as in a separate network
        self.server: Process | None = None
        self.agent: Process | None = None

    @property
    def server_url(self) -> str:
        return f"{self._cluster.scheme}://{self.host}:{self.server_port}"

    @property
    def agent_url(self) -> str:
        return f"{self._cluster.scheme}://{self.host}:{self.agent_port}"

    def start_server(self, *extra: str) -> Process:
        self.data.mkdir(parents=True, exist_ok=True)
        arguments = ["cube", "server", "--port", str(self.server_port), "--data", str(self.data)]
        arguments += ["--token-file", str(self._cluster.token_file), *self._cluster.tls_flags("server"), *extra]
        self.server = self._cluster.run(f"server-{self.name}", arguments, self.prefix)
        return self.server

    def start_agent(self, *extra: str) -> Process:
        arguments = ["cube", "agent", "--port", str(self.agent_port), "--endpoint", self.server_url]
        arguments += ["--data", str(self.data), "--token-file", str(self._cluster.token_file)]
        arguments += [
            "--shard",
            f"{self.shard}/{self._cluster.shards}",
            "--watch",
            "0.3",
            *self._cluster.tls_flags("agent"),
            *extra,
        ]
        self.agent = self._cluster.run(f"agent-{self.name}", arguments, self.prefix)
        return self.agent

    def server_status(self) -> dict[str, Any]:
        return self._cluster.ask(self.server_url, "/v1/status")

    def agent_status(self) -> dict[str, Any]:
        return self._cluster.ask(self.agent_url, "/v1/status")

    def active(self, model: str = "ctr") -> int:
        """The server's active version; 0: none."""
        for found in self.server_status()["models"]:
            if found["name"] == model:
                return int(found["active"])
        return 0


class Cluster:
    """Shards × replicas of servers and agents, and one transfer over them. Ends all it started."""

    def __init__(
        self,
        root: Path,
        shards: int = 2,
        replicas: int = 2,
        model: str = "ctr",
        authority: Authority | None = None,
        **settings: Any,
    ) -> None:
        self.root, self.shards, self.replicas, self.model = root, shards, replicas, model
        self.repository = root / "repo"
        self.state = root / "transfer"
        self.logs = root / "logs"
        for folder in (self.repository, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.token_file = root / "token"
        write_token(self.token_file, TOKEN, overwrite=True)
        self.instances = [Instance(self, s, r) for s in range(shards) for r in range(replicas)]
        self.transfer_port = free_port()
        self.transfer: Process | None = None
        self.settings = settings
        self.authority = authority  # every port uses mutual TLS with its certificates
        self.scheme = "http" if authority is None else "https"
        self.tls = None if authority is None else authority.mutual("tester")
        self._processes: list[Process] = []
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
        for peer in self._peers.values():
            peer.close()
        if error is not None:
            for log in sorted(self.logs.iterdir()):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")

    @property
    def transfer_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.transfer_port}"

    def tls_flags(self, name: str) -> list[str]:
        """Options of a process with the certificate of this name, which all of its kind share."""
        return [] if self.authority is None else flags_of(self.authority.mutual(name))

    def instance(self, shard: int, replica: int) -> Instance:
        return self.instances[shard * self.replicas + replica]

    def run(self, name: str, arguments: Sequence[str], prefix: Sequence[str] = ()) -> Process:
        process = Process(name, arguments, self.logs / f"{name}.log", prefix=prefix)
        self._processes.append(process)
        return process

    def start(self) -> None:
        """Servers, agents and transfer, all answering."""
        self.start_instances()
        self.start_transfer()

    def start_instances(self) -> None:
        for instance in self.instances:
            instance.start_server()
            instance.start_agent()
        self.wait_instances()

    def wait_instances(self) -> None:
        """Until every server and agent answers."""
        for instance in self.instances:
            wait_until(
                lambda one=instance: self.answers(one.server, one.server_url), f"server {instance.name}", START_S
            )
            wait_until(lambda one=instance: self.answers(one.agent, one.agent_url), f"agent {instance.name}", START_S)

    def start_transfer(self, *extra: str, prefix: Sequence[str] = ()) -> Process:
        config = self.write_config()
        arguments = ["cube", "transfer", "--config", str(config), "--port", str(self.transfer_port)]
        arguments += [*self.tls_flags("transfer"), *extra]
        self.transfer = self.run("transfer", arguments, prefix)
        wait_until(lambda: self.answers(self.transfer, self.transfer_url), "transfer", START_S)
        return self.transfer

    def write_config(self, name: str = "transfer.yaml", **changes: Any) -> Path:
        shards = [
            [{"agent": one.agent_url, "server": one.server_url} for one in self.instances if one.shard == shard]
            for shard in range(self.shards)
        ]
        settings = {
            "repository": str(self.repository),
            "models": [self.model],
            "state": str(self.state),
            "token_file": str(self.token_file),
            "shards": shards,
            "poll_s": 0.2,
            **self.settings,
            **changes,
        }
        path = self.root / name
        path.write_text(yaml.safe_dump(settings))
        return path

    def answers(self, process: Process | None, url: str) -> bool:
        assert process is not None
        process.check_running()
        self.ask(url, "/v1/status")
        return True

    def ask(self, url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        peer = self._peers.setdefault(url, Peer(url, TOKEN, timeout_s=30.0, tls=self.tls))
        return peer.get(path) if body is None else peer.post(path, body)

    def status(self) -> dict[str, Any]:
        """Transfer's status of the model."""
        found = self.ask(self.transfer_url, "/v1/status")["models"]
        unknown = {"name": self.model, "live": None}  # until transfer has looked at the repository
        return next((one for one in found if one["name"] == self.model), unknown)

    def wait_live(self, version: int, timeout_s: float = 120.0, *, everywhere: bool = True) -> None:
        """Until transfer says so and, with `everywhere`, every server answers from it."""
        wait_until(lambda: self.status()["live"] == version, f"version {version} live", timeout_s)
        if everywhere:
            for one in self.instances:
                wait_until(
                    lambda one=one: one.active(self.model) == version, f"{version} active on {one.name}", timeout_s
                )
