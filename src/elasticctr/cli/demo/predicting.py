"""The third part: a prediction server answers over every protocol, takes up a delta while it is asked, and scores as
the trainer does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from elasticctr.cli.demo.protocols import ask_all
from elasticctr.cli.demo.serving import MODEL, RUN, train_more
from elasticctr.cli.demo.shell import Shell
from elasticctr.data.formats.parser import Parser
from elasticctr.errors import DeadlineExceeded, ElasticCTRError, InternalError
from elasticctr.net.client import Peer
from elasticctr.versions.repository import Repository
from elasticctr.versions.serving_schema import SCHEMA, parse_serving_schema

WAIT_S = 60.0
LINES = 5000
BATCH = 20


def predict_live(shell: Shell, directory: Path) -> dict[str, Any]:
    repo, run = directory / "repo", directory / "runs" / RUN
    lines = read_lines(directory / "log")
    with DemoServer(directory, repo) as server:
        live_s = server.wait_live(Repository(str(repo)).live(MODEL).version)
        shell.say(f"ready after {live_s:.2f} s: index files built, version checked against its own samples")
        scores = ask_every_way(shell, server, repo, lines)
        with Requests(server.url, lines) as requests:
            train_more(shell, directory, run, repo)
            version = Repository(str(repo)).live(MODEL).version
            delta_s = server.wait_live(version, Repository(str(repo)).events(MODEL)[-1].time)
            time.sleep(0.5)
        shell.say(f"version {version} answers {delta_s:.2f} s after it was announced")
        counts = ", ".join(f"{number}: {count:,}" for number, count in sorted(requests.versions.items()))
        shell.say(
            f"meanwhile {requests.asked:,} requests of {BATCH} samples, {requests.failed} failed; by version {counts}"
        )
        worst = _compare(shell, directory, run, server, lines)
        status = server.stop()
    shell.say(f"offline and served scores of {LINES:,} samples: largest difference {worst:.2g}")
    shell.say("all processes stopped")
    spread = max(scores.values()) - min(scores.values())
    if requests.failed or status != 0 or not worst <= 1e-6 or not spread <= 1e-6:
        told = requests.first_error or f"difference {worst}, spread {spread}, status {status}"
        raise InternalError(f"the prediction server did not do as it should: {told}")
    return {
        "live_s": live_s, "protocols": sorted(scores), "protocol_spread": spread, "requests": requests.asked,
        "failed": requests.failed, "versions": sorted(requests.versions), "delta_live_s": delta_s,
        "offline_difference": worst,
    }  # fmt: skip


def ask_every_way(shell: Shell, server: DemoServer, repo: Path, lines: list[str]) -> dict[str, float]:
    repository = Repository(str(repo))
    version = repository.live(MODEL).version
    schema = parse_serving_schema(repository.read_file(MODEL, version, SCHEMA), SCHEMA).samples
    parser = Parser(schema, require_label=False)
    for line in lines:
        batch = parser.parse(line.encode() + b"\n").batch
        # The oldest protocol has a place for one id of every slot.
        if all(len(batch.slot(number)[0]) == 1 for number in range(len(schema.sparse))):
            break
    scores = ask_all(server.url, server.grpc, MODEL, line, batch)
    shell.say(f"\none line of the log, scored by version {version}:")
    for name, score in scores.items():
        shell.say(f"  {name:<12} {score:.8f}")
    return scores


def _compare(shell: Shell, directory: Path, run: Path, server: DemoServer, lines: list[str]) -> float:
    """Scores a file with the trainer's code and with the server; the largest difference."""
    data = directory / "today.txt"
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    offline, served = directory / "offline.txt", directory / "served.txt"
    from elasticctr.train.checkpoint import open_checkpoint

    newest = open_checkpoint(run).path
    shell.ask("predict", str(newest), "--data", str(data), "--out", str(offline), told=True)
    shell.ask("call", str(data), "--endpoint", server.url, "--model", MODEL, "--out", str(served), told=True)
    ours, theirs = (np.loadtxt(path, dtype=np.float64, ndmin=2)[:, -1] for path in (offline, served))
    if ours.shape != theirs.shape:
        raise InternalError(f"{len(ours)} offline scores, {len(theirs)} served ones")
    return float(np.abs(ours - theirs).max())


def read_lines(log: Path) -> list[str]:
    with sorted(log.glob("part-*"))[-1].open(encoding="utf-8") as file:
        return [line.rstrip("\n") for _, line in zip(range(LINES), file, strict=False)]


class DemoServer:
    """`elasticctr serve`, as a user would start it."""

    def __init__(self, directory: Path, repo: Path) -> None:
        self._log = directory / "serve.log"
        command = ["serve", "--repo", str(repo), "--model", MODEL, "--port", "0", "--grpc-port", "0", "--poll", "0.2"]
        command += ["--index-dir", str(directory / "serve"), "--drain", "0.2", "--json"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "elasticctr", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(b'{"http"'):
            raise InternalError(f"the prediction server did not start: {line.decode()} {self._tail()}")
        found = json.loads(line)
        self.url, self.grpc = str(found["http"]), found["grpc"]

    def wait_live(self, version: int, since: float | None = None) -> float:
        """Until it answers from `version`; the seconds it took since `since` (unix), or since now."""
        started = time.time() if since is None else since
        deadline = time.monotonic() + WAIT_S
        with Peer(self.url) as peer:
            while time.monotonic() < deadline:
                status = peer.get(f"/v1/models/{MODEL}")
                if status["live"] == version:
                    return max(0.0, float(status["activated"]) - started)
                time.sleep(0.02)
        raise DeadlineExceeded(f"version {version} does not answer after {WAIT_S:.0f} s: {self._tail()}")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.stop()

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


@dataclass
class Requests:
    """A client that keeps asking, between `with` and its end. Nothing is tried twice."""

    url: str
    lines: list[str]
    asked: int = 0
    failed: int = 0
    first_error: str = ""
    versions: Counter[int] = field(default_factory=Counter)

    def __enter__(self) -> Requests:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(10)

    def _run(self) -> None:
        with Peer(self.url, timeout_s=10) as peer:
            while not self._is_over.wait(0.002):
                start = self.asked * BATCH % (len(self.lines) - BATCH)
                try:
                    body = {"lines": self.lines[start : start + BATCH]}
                    answer = peer.post(f"/v1/models/{MODEL}:predict", body)
                    self.versions[int(answer["version"])] += 1
                except ElasticCTRError as e:
                    self.failed += 1
                    self.first_error = self.first_error or f"{e.code}: {e}"
                self.asked += 1
