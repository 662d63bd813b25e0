"""Real ElasticCTR processes on loopback, for abuse.py and chaos.py: ports outlive restarts, logs go to files.

with Stack(folder, shards=2, replicas=2, models=["ctr"]) as stack:
    stack.start()
    stack.serve[0].kill()
    stack.serve[0].start()
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml

from elasticctr.cluster.launch import find_free_port
from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.errors import DataError, ElasticCTRError
from elasticctr.net.client import Peer

T = TypeVar("T")
START_S = 180.0  # a dozen processes that start at once on a busy machine take long
HOST = "127.0.0.1"
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    return find_free_port(HOST)


def wait_until(check: Callable[[], T], what: str, timeout_s: float = START_S, every_s: float = 0.1) -> T:
    """The first true result of `check`; errors of the tree count as not yet."""
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = check()
            if last:
                return last  # type: ignore[return-value]
        except ElasticCTRError as e:
            last = e
        time.sleep(every_s)
    raise SystemExit(f"{what}: not within {timeout_s:g} s; last seen: {last!r}")


def make_token(path: Path) -> str:
    token = secrets.token_hex(16)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(token + "\n")
    return token


def make_log(folder: Path, rows: int, *, files: int = 3, cardinality: int = 300) -> None:
    """A synthetic click log in slot text under `folder`: part-*.txt and schema.yaml."""
    spec = criteo_spec(Format.SLOT, slots=6, dense=3, cardinalities=(cardinality,))
    write_log(spec.model_copy(update={"multi": (False,) * 4 + (True,) * 2}), folder, rows)
    (whole,) = folder.glob("part-*")
    lines = whole.read_bytes().splitlines(keepends=True)
    whole.unlink()
    for number in range(files):
        piece = lines[len(lines) * number // files : len(lines) * (number + 1) // files]
        (folder / f"part-{number:05d}.txt").write_bytes(b"".join(piece))


def run_command(*arguments: str) -> None:
    """Runs an `elasticctr …` command that must succeed."""
    done = subprocess.run([sys.executable, "-m", "elasticctr", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"elasticctr {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")


class Process:
    """An `elasticctr …` command that can be restarted."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, url: str = "", token: str = "", grpc: str = ""
    ) -> None:
        self.name, self.arguments, self.log, self.url, self.grpc = name, list(arguments), log, url, grpc
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "elasticctr", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self.is_paused = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return 0 if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(number)
            self.is_paused = number is signal.SIGSTOP or (self.is_paused and number is not signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(60)

    def answers(self, path: str = "/healthz", timeout_s: float = 2.0) -> bool:
        """Whether it answers successfully."""
        if not self.is_running or self.is_paused:
            return False
        try:
            with Peer(self.url, self._token or None, timeout_s=timeout_s) as peer:
                peer.get(path)
        except DataError:
            return True  # health is plain text
        except ElasticCTRError:
            return False
        return True

    def wait_ready(self) -> None:
        def look() -> bool:
            if not self.is_running:
                raise SystemExit(f"{self.name} ended with {self.exit_status}:\n{self.tail()}")
            return self.answers()

        wait_until(look, f"{self.name} answers")

    def tail(self, count: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-count:] if self.log.exists() else ""

    # Costs

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self, peak: bool = False) -> float:
        key = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        return 0.0

    def reset_peak(self) -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")


class Stack:
    """A repository, a Cube of shards × replicas with agents and transfer, and prediction servers over it."""

    def __init__(
        self,
        root: Path,
        *,
        models: Sequence[str],
        shards: int = 1,
        replicas: int = 1,
        servers: int = 1,
        is_cube: bool = True,
        max_buffered_mib: int = 1024,
        limits: dict[str, int] | None = None,
        poll_s: float = 0.3,
    ) -> None:
        self.root, self.models, self._is_cube = root, list(models), is_cube
        self.repository = root / "repository"
        self.logs = root / "logs"
        for folder in (self.repository, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.token_file = root / "token"
        self.token = make_token(self.token_file)
        self._secret = ["--token-file", str(self.token_file)]
        self.cube: list[list[Process]] = []  # by shard, its replicas
        self.agents: list[Process] = []
        for shard in range(shards):
            self.cube.append([])
            for replica in range(replicas):
                self._add_instance(shard, shards, replica, max_buffered_mib)
        self.transfer = self._add_transfer(poll_s)
        self.serve = [self._add_serve(number, limits or {}, poll_s) for number in range(servers)]

    @property
    def processes(self) -> list[Process]:
        return [*(one for shard in self.cube for one in shard), *self.agents, self.transfer, *self.serve]

    @property
    def addresses(self) -> list[list[str]]:
        return [[one.url.removeprefix("http://") for one in shard] for shard in self.cube]

    def start(self) -> None:
        for one in self.processes:
            one.start()
        for one in self.processes:
            one.wait_ready()

    def wait_live(self, model: str, version: int, timeout_s: float = START_S) -> None:
        """Until transfer and every prediction server answer from this version or a newer one."""
        for url in (self.transfer.url, *(one.url for one in self.serve)):
            wait_until(lambda url=url: self.live(url, model) >= version, f"{model} {version} at {url}", timeout_s)

    def live(self, url: str, model: str) -> int:
        """The version that transfer or a prediction server has live; 0 for none."""
        for one in self.ask(url, "/v1/status")["models"]:
            if one["name"] == model:
                return int(one.get("live") or 0)
        return 0

    def ask(self, url: str, path: str) -> dict[str, Any]:
        with Peer(url, self.token, timeout_s=10.0) as peer:
            return peer.get(path)

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for one in self.processes:
            one.kill()

    def run(self, name: str, arguments: Sequence[str], port: int) -> Process:
        """Starts one more process of this stack, with the token. The caller ends it."""
        return Process(
            name,
            [*arguments, "--port", str(port), *self._secret],
            self.logs / f"{name}.log",
            f"http://{HOST}:{port}",
            self.token,
        )

    def _add_instance(self, shard: int, shards: int, replica: int, max_buffered_mib: int) -> None:
        name = f"{shard}-{replica}"
        data = self.root / "data" / name
        data.mkdir(parents=True, exist_ok=True)
        where = ["--data", str(data)]
        limit = ["--max-buffered", str(max_buffered_mib)]
        server = self.run(f"cube-{name}", ["cube", "server", *where, *limit], free_port())
        watching = ["--endpoint", server.url, "--shard", f"{shard}/{shards}", "--watch", "0.3"]
        self.cube[shard].append(server)
        self.agents.append(self.run(f"agent-{name}", ["cube", "agent", *where, *watching], free_port()))

    def _add_transfer(self, poll_s: float) -> Process:
        agents = iter(self.agents)
        settings = {
            "repository": str(self.repository),
            "models": self.models,
            "state": str(self.root / "transfer"),
            "token_file": str(self.token_file),
            "shards": [[{"agent": next(agents).url, "server": one.url} for one in shard] for shard in self.cube],
            "poll_s": poll_s,
        }
        config = self.root / "transfer.yaml"
        config.write_text(yaml.safe_dump(settings))
        return self.run("transfer", ["cube", "transfer", "--config", str(config)], free_port())

    def _add_serve(self, number: int, limits: dict[str, int], poll_s: float) -> Process:
        models = []
        for model in self.models:
            index = str(self.root / "index" / f"{number}-{model}")
            models.append({"name": model, "repo": str(self.repository), "poll_s": poll_s, "index_dir": index})
            if self._is_cube:
                cube = self.root / f"cube-{model}.yaml"
                patient = {"timeout_ms": 20_000, "connect_ms": 3000, "backup_ms": 100}
                shards = {"model": model, "shards": self.addresses, "token_file": str(self.token_file)}
                cube.write_text(yaml.safe_dump(shards | patient))
                models[-1] |= {"cube": str(cube), "policy": {"cube_timeout_ms": 20_000}}
        port, grpc_port = free_port(), free_port()
        settings = {"port": port, "grpc_port": grpc_port, "drain_s": 0.3, "limits": limits, "models": models}
        config = self.root / f"serve-{number}.yaml"
        config.write_text(yaml.safe_dump(settings))
        return Process(
            f"serve-{number}",
            ["serve", *self._secret, "--config", str(config)],
            self.logs / f"serve-{number}.log",
            f"http://{HOST}:{port}",
            self.token,
            f"{HOST}:{grpc_port}",
        )
