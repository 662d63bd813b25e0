"""The clients of chaos.py: lookups and predictions over several protocols, with answers checked against the repository.

usage: python benchmarks/chaos_clients.py      (one line of JSON has all addresses; another one ends it)

An answer names a version; its rows must be that version's rows, and its scores those of that version's files
(elasticctr.versions.scoring). A request fails if the client's usual retries over the endpoints did not help.
"""

from __future__ import annotations

import base64
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import protocols
from elasticctr import _native
from elasticctr.cube.client import CubeClient as CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.errors import ElasticCTRError
from elasticctr.serve.client import PredictClient as PredictClient
from elasticctr.versions.repository import Repository
from elasticctr.versions.samples import make_batch
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA, parse_serving_schema
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.verification import GRAPH

EVERY_S = 0.05
PATIENCE_S = 20.0  # for a whole call: about twenty processes share two cores
TRY_S = 3.0  # for one attempt with protocols for which we have no client
TRIES = 6
TOLERANCE = 2e-5  # of scores
BATCHES, SAMPLES = 16, 5


class Truth:
    """A version's rows and scores, from the repository's files alone."""

    def __init__(self, repository: str, model: str, batches: list[Batch], feasigns: NDArray[np.uint64]) -> None:
        self._repository, self._model = Repository(repository), model
        self._batches, self._feasigns = batches, feasigns
        self._lock = threading.Lock()
        self.rows = lru_cache(maxsize=16)(self._rows)
        self.scores = lru_cache(maxsize=16)(self._scores)

    def _rows(self, version: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The rows of all feasigns in the requests, in order."""
        with self._lock:
            chain = self._repository.chain(self._model, version)
            return get_rows(self._repository, chain, next(iter(chain[-1].tables)), self._feasigns)

    def _scores(self, version: int) -> list[NDArray[np.float32]]:
        """The scores of all batches in the requests."""
        with self._lock:
            chain = self._repository.chain(self._model, version)

            def read(name: str) -> bytes:
                return self._repository.read_file(self._model, version, name)

            schema = parse_serving_schema(read(SCHEMA), SCHEMA)
            graph = DenseGraph(read(GRAPH), GRAPH)

            def rows(table: str, feasigns: NDArray[np.uint64]) -> Any:
                return get_rows(self._repository, chain, table, feasigns)

            return [graph.scores(make_inputs(schema, batch, rows)).ravel() for batch in self._batches]


class Loop:
    """A client of one model over one protocol."""

    def __init__(self, name: str, ask: Callable[[random.Random], str]) -> None:
        self.name, self._ask = name, ask
        self.asked = self.failed = self.wrong = 0
        self.messages: list[str] = []
        self.slowest_s = 0.0
        self.is_over = False

    def run(self) -> None:
        draw = random.Random(self.name)
        while not self.is_over:
            began = time.monotonic()
            try:
                found = self._ask(draw)
                if found:
                    self.wrong += 1
                    self._note(found)
            except (ElasticCTRError, OSError, ValueError, LookupError, protocols.Refused) as e:
                self.failed += 1
                self._note(f"{type(e).__name__}: {e}")
            self.asked += 1
            took = time.monotonic() - began
            self.slowest_s = max(self.slowest_s, took)
            time.sleep(max(0.0, EVERY_S - took))

    def _note(self, text: str) -> None:
        if len(self.messages) < 20:
            self.messages.append(f"{time.strftime('%H:%M:%S')} {text[:400]}")


class Clients:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._at = settings
        self._token: str = settings["token"]
        self.versions: Counter[str] = Counter()
        self.loops: list[Loop] = []
        for model in settings["models"]:
            self._add(model)

    def _add(self, model: str) -> None:
        at = self._at
        schema = parse_serving_schema(Repository(at["repository"]).read_file(model, at["first"][model], SCHEMA), SCHEMA)
        whole = next(iter(Dataset(at["log"], schema.samples)))
        samples = [protocols.samples_of(whole, SAMPLES * number, SAMPLES) for number in range(BATCHES)]
        batches = [
            make_batch(schema.samples, list(one.sparse.values()), np.hstack(list(one.dense.values())).tolist())
            for one in samples
        ]
        known = np.unique(np.concatenate([batch.values for batch in batches]))
        feasigns = np.concatenate([known, np.arange(1, 20, dtype=np.uint64)])  # and some without rows
        truth = Truth(at["repository"], model, batches, feasigns)
        (table,) = schema.tables
        asks = {
            "cube wire": self._cube(model, table, feasigns, truth),
            "cube http": self._seek(model, table, feasigns, truth),
            "predict http": self._predict(model, samples, truth),
            "predict grpc": self._infer(model, samples, truth),
        }
        self.loops += [Loop(f"{model} {name}", ask) for name, ask in asks.items()]

    def _judge_rows(self, model: str, truth: Truth, version: int, places: Any, rows: Any, found: Any) -> str:
        self.versions[f"{model} {version}"] += 1
        true_rows, true_found = truth.rows(version)
        bad = (true_found[places] != found) | (true_rows[places] != rows).any(axis=1)
        return f"{model} version {version}: {int(bad.sum())} of {len(places)} rows are not its own" if bad.any() else ""

    def _judge_scores(self, model: str, truth: Truth, version: int, place: int, scores: Any) -> str:
        self.versions[f"{model} {version}"] += 1
        away = np.abs(truth.scores(version)[place] - np.asarray(scores, np.float32).ravel()).max()
        return "" if away <= TOLERANCE else f"{model} version {version}: a score is {away:.3g} away from its files'"

    def _cube(self, model: str, table: str, feasigns: Any, truth: Truth) -> Callable[[random.Random], str]:
        patient = {"timeout_ms": int(PATIENCE_S * 1000), "connect_ms": 3000, "backup_ms": 200}
        client = CubeClient(CubeSettings(shards=self._at["shards"], **patient), self._token)

        def ask(draw: random.Random) -> str:
            places = np.array(draw.choices(range(len(feasigns)), k=40))
            answer = client.get(f"{model}/{table}", feasigns[places])
            return self._judge_rows(model, truth, answer.version, places, answer.rows, answer.found)

        return ask

    def _seek(self, model: str, table: str, feasigns: Any, truth: Truth) -> Callable[[random.Random], str]:
        shards: list[list[str]] = self._at["shards"]
        owner = np.array([_native.shard_of(int(f), len(shards)) for f in feasigns])

        def ask(draw: random.Random) -> str:
            shard = draw.randrange(len(shards))
            places = np.array(draw.choices(np.flatnonzero(owner == shard).tolist(), k=20))
            body = json.dumps({"keys": feasigns[places].tolist(), "version_required": True}).encode()
            request = protocols.http_request("POST", f"/DictService/seek?table={model}/{table}", body, self._token)

            def once(address: str) -> dict[str, Any]:
                with connect(address) as connection:
                    connection.sendall(request)
                    status, answer = protocols.read_http(connection)
                    if status != 200:
                        raise protocols.Refused(f"{address}: {status} {answer[:200]!r}")
                    found: dict[str, Any] = json.loads(answer)
                    return found

            answer = retry(once, shards[shard], draw)
            found = np.array([one["status"] == 0 for one in answer["values"]])
            width = truth.rows(int(answer["version"]))[0].shape[1]
            rows = np.zeros((len(places), width), np.float32)
            for i, one in enumerate(answer["values"]):
                if found[i]:
                    rows[i] = np.frombuffer(base64.b64decode(one["value"]), "<f4")
            return self._judge_rows(model, truth, int(answer["version"]), places, rows, found)

        return ask

    def _predict(self, model: str, samples: list[protocols.Samples], truth: Truth) -> Callable[[random.Random], str]:
        client = PredictClient(
            self._at["serve"], model=model, token=self._token, timeout_s=PATIENCE_S, hedge_s=1.0, retries=5,
            connect_s=TRY_S,
        )  # fmt: skip

        def ask(draw: random.Random) -> str:
            place = draw.randrange(len(samples))
            answer = client.predict(samples[place].json(), values="feasigns")
            return self._judge_scores(model, truth, answer.version, place, answer.scores)

        return ask

    def _infer(self, model: str, samples: list[protocols.Samples], truth: Truth) -> Callable[[random.Random], str]:
        import grpc

        metadata = [("authorization", f"Bearer {self._token}")]
        again = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)]
        calls = {
            address: grpc.insecure_channel(address, again).unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for address in self._at["grpc"]
        }

        def ask(draw: random.Random) -> str:
            place = draw.randrange(len(samples))
            message = protocols.infer_message(model, samples[place])

            def once(address: str) -> bytes:
                try:
                    found: bytes = calls[address](message, timeout=TRY_S, metadata=metadata)
                    return found
                except grpc.RpcError as e:
                    raise protocols.Refused(f"{address}: {e.code().name}: {e.details()}") from None

            version, scores = protocols.infer_answer(retry(once, list(calls), draw))
            return self._judge_scores(model, truth, version, place, scores)

        return ask


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), TRY_S)


def retry(once: Callable[[str], Any], endpoints: list[str], draw: random.Random) -> Any:
    """Tries another endpoint after each failure, with a growing pause, like any client."""
    order = draw.sample(endpoints, len(endpoints))
    failures = []
    for attempt in range(TRIES):
        try:
            return once(order[attempt % len(order)])
        except (OSError, protocols.Refused) as e:
            failures.append(f"{type(e).__name__}: {e}")
            time.sleep(0.05 * 2**attempt)
    raise protocols.Refused("; then ".join(failures))


def main() -> None:
    clients = Clients(json.loads(sys.stdin.readline()))
    threads = [threading.Thread(target=loop.run, daemon=True) for loop in clients.loops]
    for thread in threads:
        thread.start()
    print("{}", flush=True)
    for line in sys.stdin:
        if "stop" in line:
            for loop in clients.loops:
                loop.is_over = True
            for thread in threads:
                thread.join(2 * PATIENCE_S)
        found = {
            loop.name: {
                "asked": loop.asked, "failed": loop.failed, "wrong": loop.wrong, "slowest_s": loop.slowest_s,
                "messages": loop.messages,
            }
            for loop in clients.loops
        }  # fmt: skip
        print(json.dumps({"loops": found, "versions": len(clients.versions)}), flush=True)


if __name__ == "__main__":
    main()
