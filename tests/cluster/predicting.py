"""A real prediction server, and load that checks every answer against the version it names.

with Predictor(tmp_path, scored) as predictor:
    predictor.start()
    predictor.wait_live(1)
    with predictor.load() as load:
        …                                  # the fault
    load.check()                           # no request failed, none was answered by two versions
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import yaml

from elasticctr.net.client import Peer
from tests.cluster.harness import START_S, Process, free_port, wait_until
from tests.cluster.scored import Sample, Scored

# A machine that starts and publishes at the same time answers late; stories test correctness, not
# milliseconds.
PATIENT = {"queue_ms": 50_000, "timeout_ms": 55_000}
REQUESTS = 64  # different ones, so that expected scores are worked out once


@dataclass
class Answered:
    """The results of a load. `mixed` counts answers whose scores are not those of the version they name."""

    requests: int = 0
    failed: int = 0
    mixed: int = 0
    versions: Counter[int] = field(default_factory=Counter)
    variants: Counter[str] = field(default_factory=Counter)
    by_sticky: dict[str, set[str]] = field(default_factory=dict)
    degraded: int = 0
    latencies_s: list[float] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def check(self) -> None:
        assert (self.failed, self.mixed) == (0, 0), (self.failed, self.mixed, self.messages[:5])
        assert self.requests > 0


class Load:
    """Threads with a connection each, `rate` requests a second together. Nothing is tried twice."""

    def __init__(
        self,
        scored: Scored,
        port: int,
        rate: float = 200,
        threads: int = 2,
        candidates: int = 5,
        model: str = "ctr",
        token: str | None = None,
        sticky: str | None = None,
        is_judged: bool = True,
    ) -> None:
        random = np.random.default_rng(1)
        self.answered = Answered()
        self._scored, self._port, self._model = scored, port, model
        self._pause_s = threads / rate
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._samples = [scored.draw(random, candidates) for _ in range(REQUESTS)]
        self._expected: dict[tuple[int, int], Any] = {}
        self._sticky, self._is_judged = sticky, is_judged
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> Answered:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)
        return self.answered

    def check(self) -> Answered:
        self.answered.check()
        return self.answered

    def _run(self, number: int) -> None:
        random = np.random.default_rng(number)
        connection: http.client.HTTPConnection | None = None
        due_s = time.monotonic()
        while not self._is_over.is_set():
            due_s = max(due_s + self._pause_s, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))
            place = int(random.integers(REQUESTS))
            user = f"u{int(random.integers(500))}"
            body: dict[str, Any] = {"samples": [s.json() for s in self._samples[place]], "values": "feasigns"}
            if self._sticky is not None:
                body[self._sticky] = user
            started_s = time.perf_counter()
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                    connection.connect()
                    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.request("POST", f"/v1/models/{self._model}:predict", json.dumps(body), self._headers)
                response = connection.getresponse()
                answer = json.loads(response.read())
                took_s = time.perf_counter() - started_s
                if response.will_close:
                    connection.close()
                    connection = None
                self._note(place, user, response.status, answer, took_s)
            except (OSError, http.client.HTTPException, ValueError) as e:
                if connection is not None:
                    connection.close()
                connection = None
                with self._lock:
                    self.answered.requests += 1
                    self.answered.failed += 1
                    self.answered.messages.append(f"{type(e).__name__}: {e}")

    def _note(self, place: int, user: str, status: int, answer: dict[str, Any], took_s: float) -> None:
        with self._lock:
            found = self.answered
            found.requests += 1
            found.latencies_s.append(took_s)
            if status != 200:
                found.failed += 1
                found.messages.append(f"{status}: {answer}")
                return
            version = int(answer["version"])
            found.versions[version] += 1
            found.variants[answer["variant"]] += 1
            found.by_sticky.setdefault(user, set()).add(answer["variant"])
            found.degraded += bool(answer["coverage"].get("degraded"))
            if not self._is_judged:
                return
            expected = self._expected.get((place, version))
            if expected is None and version in self._scored.truth.writers:
                expected = self._scored.expected(version, self._samples[place])
                self._expected[place, version] = expected
            if expected is None or np.abs(expected - np.array(answer["scores"])).max() > 2e-5:
                found.mixed += 1
                found.messages.append(f"not as version {version} scores: {answer}")


class Predictor:
    """One `elasticctr serve`, restarted on the same port."""

    def __init__(self, root: Path, scored: Scored, token_file: Path | None = None, token: str | None = None) -> None:
        self.root, self.scored = root, scored
        self.log = root / "serve.log"
        self.port = free_port()
        self.grpc_port: int | None = None
        self.process: Process | None = None
        self._token_file, self._token = token_file, token
        self._peer: Peer | None = None

    def start(self, *extra: str, **model: Any) -> None:
        """With settings of the model (or `models=[…]`), from a file of settings."""
        models = model.pop("models", None) or [{"name": "ctr", "repo": str(self.scored.repository.url), **model}]
        for one in models:
            one.setdefault("poll_s", 0.05)
            one.setdefault("index_dir", str(self.root / "index" / one["name"]))
        settings = {"port": self.port, "grpc_port": None, "drain_s": 0.3, "limits": PATIENT, "models": models}
        config = self.root / "serve.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.run("--config", str(config), *extra)

    def run(self, *arguments: str, **environ: str) -> None:
        """`elasticctr serve` with these arguments; returns when it listens."""
        arguments = ("serve", *arguments, "--json")
        if self._token_file is not None:
            arguments += ("--token-file", str(self._token_file))
        offset = self.log.stat().st_size if self.log.exists() else 0
        self.process = Process("serve", arguments, self.log, environ)
        process = self.process

        def listening() -> dict[str, Any]:
            process.check_running()
            lines = self.log.read_bytes()[offset:].split(b"\n")[:-1]
            found: dict[str, Any] = next((json.loads(line) for line in lines if line.startswith(b"{")), {})
            return found

        found = wait_until(listening, "elasticctr serve listens", START_S)
        self.port, self.grpc_port = int(found["port"]), found["grpc_port"]
        self._peer = Peer(f"http://127.0.0.1:{self.port}", self._token, timeout_s=60)

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process is not None:
            self.process.kill()
        if self._peer is not None:
            self._peer.close()
        if error is not None and self.log.exists():
            print(f"--- {self.log.name}\n{self.log.read_text(errors='replace')[-4000:]}")

    def get(self, path: str) -> dict[str, Any]:
        assert self._peer is not None
        return self._peer.get(path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self._peer is not None
        return self._peer.post(path, body or {})

    def status(self, model: str = "ctr") -> dict[str, Any]:
        return self.get(f"/v1/models/{model}")

    def is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    def command(self, verb: str, body: dict[str, Any] | None = None, model: str = "ctr") -> dict[str, Any]:
        return self.post(f"/v1/models/{model}:{verb}", body)

    def wait_live(self, version: int, model: str = "ctr", timeout_s: float = 120) -> None:
        assert self.process is not None
        process = self.process

        def is_live() -> bool:
            process.check_running()
            return bool(self.status(model)["live"] == version)

        wait_until(is_live, f"{model} version {version} live", timeout_s, 0.01)

    def wait_refused(self, version: int, model: str = "ctr") -> dict[str, Any]:
        def find() -> dict[str, Any]:
            found = [one for one in self.status(model)["refused"] if one["version"] == version]
            return found[0] if found else {}

        return wait_until(find, f"{model} version {version} refused", 60, 0.01)

    def predict(self, samples: Sequence[Sample], model: str = "ctr", **more: Any) -> dict[str, Any]:
        body = {"samples": [sample.json() for sample in samples], "values": "feasigns", **more}
        return self.post(f"/v1/models/{model}:predict", body)

    def load(self, **options: Any) -> Load:
        return Load(self.scored, self.port, token=self._token, **options)
