"""Triton's clients, over gRPC and over HTTP with binary tensors, while versions change and the server is stopped:
no call fails, and every score is from the version that the answer names."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from elasticctr.versions.repository import Repository
from tests.cluster.harness import wait_until
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Sample, Scored


class TritonLoad:
    """One thread per client, each asking as fast as it is answered."""

    def __init__(self, scored: Scored, clients: list[tuple[Any, Any]]) -> None:
        self._scored = scored
        self._is_over = threading.Event()
        self.versions: Counter[str] = Counter()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(i, *one)) for i, one in enumerate(clients)]

    def __enter__(self) -> TritonLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, number: int, module: Any, address: str) -> None:
        random = np.random.default_rng(number)
        client = module.InferenceServerClient(address)
        while not self._is_over.is_set():
            samples = self._scored.draw(random, 5)
            try:
                result = client.infer("ctr", make_inputs(module, samples))
            except Exception as e:
                self.failures.append(repr(e))
                continue
            response = result.get_response()
            version = response["model_version"] if isinstance(response, dict) else response.model_version
            self.versions[version] += 1
            if not self._scored.is_right(int(version), samples, result.as_numpy("scores")[:, 0].tolist()):
                self.failures.append(f"not as version {version} scores: {response}")
        client.close()


def make_inputs(module: Any, samples: list[Sample]) -> list[Any]:
    def tensor(name: str, values: Any, datatype: str) -> Any:
        return module.InferInput(name, values.shape, datatype).set_data_from_numpy(values)

    return [
        tensor("user", np.array([sample.user for sample in samples], np.uint64), "UINT64"),
        tensor("ads", np.array([ad for sample in samples for ad in sample.ads], np.uint64), "UINT64"),
        tensor("ads.lengths", np.array([len(sample.ads) for sample in samples], np.int32), "INT32"),
        tensor("x", np.array([sample.x for sample in samples], np.float32), "FP32"),
    ]


@pytest.fixture
def scored(tmp_path: Path) -> Scored:
    return Scored(Repository(str(tmp_path / "repo")))


def test_versions_change_and_the_server_stops_under_triton_clients(tmp_path: Path, scored: Scored) -> None:
    with Predictor(tmp_path, scored) as predictor:
        predictor.start("--grpc-port", "0", "--drain", "3")
        assert predictor.process is not None
        grpc_at = f"127.0.0.1:{predictor.grpc_port}"
        client = triton_grpc.InferenceServerClient(grpc_at)
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("ctr")
        scored.base()
        predictor.wait_live(1)
        assert client.is_server_ready()
        assert client.is_model_ready("ctr", "1")
        assert list(client.get_model_metadata("ctr").versions) == ["1"]

        clients = [(triton_grpc, grpc_at), (triton_grpc, grpc_at), (triton_http, f"127.0.0.1:{predictor.port}")]
        with TritonLoad(scored, clients) as load:
            predictor.wait_live(scored.delta())
            wait_for(lambda: load.versions["2"] > 20)
            predictor.command("rollback")
            wait_for(lambda: load.versions["1"] > 20)
            predictor.command("resume")
            predictor.wait_live(scored.base())
            wait_for(lambda: load.versions["3"] > 20)
            os.kill(predictor.process.pid, signal.SIGTERM)
            while client.is_server_ready():
                time.sleep(0.005)
        client.close()
        assert load.failures == []
        assert {"1", "2", "3"} <= set(load.versions)
        assert predictor.process.stop() == 0


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, "answers of the version", 60, 0.01)
