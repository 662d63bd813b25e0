"""Runs PaddlePaddle's parameter server on this machine and counts what it costs. contenders/paddle_ps.py is a role."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from contenders.paddle_ps import role_environments
from contenders.process import SCRIPTS
from ps_runs import Speed, cpu_s

START_S = 120.0


class PeerError(Exception):
    """It did not run; the message is the end of what it said."""


def measure(python: Path, folder: Path, batch_size: int, servers: int, trainers: int, seconds: float) -> Speed:
    ports = _free_ports(servers + trainers)
    server_roles, trainer_roles = role_environments(ports[:servers], ports[servers:])
    logs = folder / "paddle_ps"
    logs.mkdir(exist_ok=True)
    command = [str(python), str(SCRIPTS / "paddle_ps.py"), str(folder), str(batch_size)]
    with contextlib.ExitStack() as stack:
        roles = [
            stack.enter_context(_started(command, environment, logs, f"{kind}-{number}"))
            for kind, environments in (("server", server_roles), ("trainer", trainer_roles))
            for number, environment in enumerate(environments)
        ]
        workers = roles[servers:]
        for worker in workers:
            _expect(worker, "ready", START_S, logs)
        before = sum(cpu_s(role.pid) for role in roles)
        for worker in workers:
            _tell(worker, str(seconds))
        answers = [json.loads(_expect(worker, "{", seconds + 60, logs)) for worker in workers]
        used_s = sum(cpu_s(role.pid) for role in roles) - before
    samples = sum(answer["samples"] for answer in answers)
    return Speed(used_s / samples * 1e6, sum(answer["samples"] / answer["seconds"] for answer in answers))


@contextlib.contextmanager
def _started(command: list[str], environment: dict[str, str], logs: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    with (logs / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=logs,
            env={**os.environ, **environment},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _expect(process: subprocess.Popen[str], start: str, timeout_s: float, logs: Path) -> str:
    """The next line that starts so; Paddle prints others too."""
    out: IO[Any] | None = process.stdout
    assert out is not None
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not select.select([out], [], [], 0.5)[0]:
            continue
        line = str(out.readline())
        if not line:
            break
        if line.startswith(start):
            return line
    ends = [path.read_text(errors="replace")[-300:] for path in sorted(logs.glob("*.log"))]
    raise PeerError(f"a role of PaddlePaddle did not say {start!r} in time: {' | '.join(ends)}")


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]
