"""Runs PaddlePaddle's parameter server on this machine and measures its cost. contenders/paddle_ps.py is a role."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import threading
import time
from pathlib import Path

from contenders.paddle_ps import role_environments
from contenders.process import SCRIPTS
from ps_runs import Speed, cpu_s

START_S = 180.0
ATTEMPTS = 2  # its roles do not always find each other


class PeerError(Exception):
    """It did not run; the message has the end of its output."""


class Role:
    """A server or trainer, killed on leaving: servers outlive their trainers."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=log.parent,
                env={**os.environ, **environment},
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def expect(self, start: str, timeout_s: float) -> str:
        """The next line that starts with `start`; Paddle prints others too."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get(timeout=max(deadline - time.monotonic(), 0.0))) is not None:
                if line.startswith(start):
                    return line
        status = self._process.poll()
        state = "still runs" if status is None else f"ended with status {status}"
        end = self._log.read_text(errors="replace")[-500:]
        raise PeerError(f"{self._log.stem} did not print {start!r} within {timeout_s:.0f} s and {state}: {end}")

    def __enter__(self) -> Role:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def measure(python: Path, folder: Path, batch_size: int, servers: int, trainers: int, seconds: float) -> Speed:
    """Measures the steady state: this many seconds after every trainer has warmed up."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _measure(python, folder, batch_size, servers, trainers, seconds)
        except PeerError as failure:
            if attempt == ATTEMPTS:
                raise
            print(f"restarting PaddlePaddle's parameter server: {failure}", flush=True)
    raise AssertionError("not reached")


def _measure(python: Path, folder: Path, batch_size: int, servers: int, trainers: int, seconds: float) -> Speed:
    ports = _free_ports(servers + trainers)
    server_roles, trainer_roles = role_environments(ports[:servers], ports[servers:])
    logs = folder / "paddle_ps"
    logs.mkdir(exist_ok=True)
    command = [str(python), str(SCRIPTS / "paddle_ps.py"), str(folder), str(batch_size)]
    with contextlib.ExitStack() as stack:
        roles = [
            stack.enter_context(Role(command, environment, logs / f"{kind}-{number}.log"))
            for kind, environments in (("server", server_roles), ("trainer", trainer_roles))
            for number, environment in enumerate(environments)
        ]
        workers = roles[servers:]
        for worker in workers:
            worker.expect("ready", START_S)
        before = sum(role.cpu_s() for role in roles)
        for worker in workers:
            worker.tell(str(seconds))
        answers = [json.loads(worker.expect("{", seconds + 60)) for worker in workers]
        used_s = sum(role.cpu_s() for role in roles) - before
    samples = sum(answer["samples"] for answer in answers)
    if samples == 0 or used_s <= 0:
        raise PeerError(f"nothing was trained within {seconds:.0f} s")
    return Speed(used_s / samples * 1e6, sum(answer["samples"] / answer["seconds"] for answer in answers))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]
