"""Constant load on a cluster from a separate process, with every answer checked against the truth.

    with Load(shards=[["127.0.0.1:8000"], …], token=…) as load:
        load.define(1)                 # before version 1 can be seen
        load.phase("before")
        …
    report = load.report               # requests, errors, mixed, wrong, latencies by phase

The other half of this file is that process: `python -m tests.cluster.load`, controlled by lines of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tests.cluster.truth import MODEL, TABLE, Truth

ROOT = Path(__file__).resolve().parents[2]
KEEP_ERRORS = 20


@dataclass
class Report:
    requests: int = 0
    rows: int = 0
    mixed: int = 0
    wrong: int = 0
    errors: int = 0
    messages: list[str] = field(default_factory=list)  # of the first errors and wrong answers
    versions: list[int] = field(default_factory=list)  # as they were first answered from, one after the other
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)  # by phase: count, p50, p99, max

    def check(self, errors: int = 0) -> None:
        assert (self.mixed, self.wrong) == (0, 0), self
        assert self.errors <= errors, self
        assert self.requests > 0, self


class Load:
    """`rate` lookups of `keys` feasigns a second, spread over `threads`."""

    def __init__(
        self,
        shards: Sequence[Sequence[str]],
        token: str | None,
        *,
        count: int = 4000,
        seed: int = 0,
        rate: float = 200,
        keys: int = 50,
        threads: int = 2,
        client: dict[str, Any] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.report = Report()
        settings = {
            "shards": shards, "token": token, "count": count, "seed": seed, "rate": rate, "keys": keys,
            "threads": threads, "client": client or {},
        }  # fmt: skip
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.cluster.load"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(settings)

    def define(self, version: int, parent: int = 0, share: float = 0.1) -> None:
        self._tell({"define": [version, parent, share]})

    def start(self) -> None:
        self._tell({"start": True})

    def phase(self, name: str) -> None:
        self._tell({"phase": name})

    def stop(self) -> Report:
        if self._process.poll() is None:
            self._tell({"stop": True}, answer=False)
            out, _ = self._process.communicate(timeout=120)
            self.report = Report(**json.loads(out.splitlines()[-1]))
        return self.report

    def __enter__(self) -> Load:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _tell(self, message: dict[str, Any], answer: bool = True) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        if answer and self._process.stdout.readline() != "ok\n":
            raise AssertionError("the load generator has ended")


class _Generator:
    def __init__(self, settings: dict[str, Any]) -> None:
        from elasticctr.cube.client import CubeClient
        from elasticctr.cube.settings import CubeSettings

        self._settings = settings
        self._truth = Truth(settings["count"], settings["seed"])
        servers = CubeSettings(shards=settings["shards"], **settings["client"])
        self._client = CubeClient(servers, settings["token"])
        self._report = Report()
        self._phase = "start"
        self._latencies: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(settings["threads"])
        ]

    def obey(self, message: dict[str, Any]) -> None:
        if "define" in message:
            self._truth.define(*message["define"])
        elif "phase" in message:
            self._phase = message["phase"]
        elif "start" in message:
            for thread in self._threads:
                thread.start()

    def finish(self) -> Report:
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(60)
        for phase, seconds in self._latencies.items():
            ms = np.array(seconds) * 1000
            self._report.latency_ms[phase] = {
                "count": len(ms), "p50": float(np.percentile(ms, 50)), "p99": float(np.percentile(ms, 99)),
                "max": float(ms.max()),
            }  # fmt: skip
        return self._report

    def _run(self, number: int) -> None:
        random = np.random.default_rng(number)
        every_s = self._settings["threads"] / self._settings["rate"]
        due = time.monotonic() + every_s * number / self._settings["threads"]
        while not self._is_over.is_set():
            wait_s = due - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            places = random.integers(0, len(self._truth.feasigns), self._settings["keys"])
            self._ask(places, due)
            due += every_s

    def _ask(self, places: Any, due: float) -> None:
        from elasticctr.errors import ElasticCTRError

        error, verdict, version = None, None, 0
        try:
            answer = self._client.get(f"{MODEL}/{TABLE}", self._truth.feasigns[places])
            took_s = time.monotonic() - due
            verdict, version = self._truth.judge(places, answer), answer.version
        except ElasticCTRError as e:
            error, took_s = f"{e.code}: {e}", time.monotonic() - due
        report = self._report
        with self._lock:
            report.requests += 1
            self._latencies.setdefault(self._phase, []).append(took_s)
            if verdict is not None:
                report.rows += verdict.rows
                report.mixed += verdict.mixed
                report.wrong += verdict.wrong
                if not verdict.is_right and len(report.messages) < KEEP_ERRORS:
                    report.messages.append(f"version {version}: {verdict}")
                if version not in report.versions[-1:]:
                    report.versions.append(version)
            else:
                report.errors += 1
                if len(report.messages) < KEEP_ERRORS:
                    report.messages.append(f"{time.time():.3f} {error}")


def main() -> None:
    generator = _Generator(json.loads(sys.stdin.readline()))
    print("ok", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "stop" in message:
            break
        generator.obey(message)
        print("ok", flush=True)
    print(json.dumps(asdict(generator.finish())), flush=True)


if __name__ == "__main__":
    main()
