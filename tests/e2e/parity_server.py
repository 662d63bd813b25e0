"""A prediction server of its own process with the models of parity_cases, for as long as a `with` lasts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.parity_protocols import Servers

READY_S = 120.0


@contextmanager
def serve(folder: Path, repo: str, models: Sequence[str]) -> Iterator[Servers]:
    settings = {
        "port": 0,
        "grpc_port": 0,
        "drain_s": 0,
        "limits": {"timeout_ms": 60_000, "queue_ms": 60_000},
        "models": [{"name": name, "repo": repo, "index_dir": str(folder / "index" / name)} for name in models],
    }
    config = folder / "serve.yaml"
    config.write_text(yaml.safe_dump(settings))
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "elasticctr", "serve", "--config", str(config), "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        listening = json.loads(process.stdout.readline())
        servers = Servers(listening["host"], listening["port"], listening["grpc_port"])
        _wait(servers, process, folder / "serve.log")
        yield servers
        servers.client.close()
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait(servers: Servers, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + READY_S
    while True:
        try:
            urllib.request.urlopen(f"http://{servers.host}:{servers.port}/readyz", timeout=60).close()
            return
        except urllib.error.HTTPError as e:
            why = e.read().decode()
        except OSError as e:
            why = str(e)
        assert process.poll() is None and time.monotonic() < ends, f"{why}\n{log.read_text()}"
        time.sleep(0.05)
