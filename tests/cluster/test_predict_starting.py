"""A server without a version says so in every protocol's terms, and clients try the next one."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.serve.client import AsyncPredictClient, PredictClient
from elasticctr.versions.repository import Repository
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored

KSERVE = {"inputs": [{"name": "user", "shape": [1, 1], "datatype": "UINT64", "data": [1]}]}
PADDLE = {"feed": [{"user": [[1]]}], "fetch": ["click"]}


def _post(port: int, path: str, body: dict[str, Any]) -> tuple[int, str | None, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.status, response.getheader("Retry-After"), json.loads(response.read())
    connection.close()
    return answer


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.promise(
    "A server gets requests while it starts, or before anything was published",
    "503, UNAVAILABLE, ELOGOFF: not ready, never 'no such model', and our clients try the next endpoint",
)
def test_server_without_a_version_is_not_ready_and_clients_ask_the_next(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    full, empty = Scored(Repository(str(tmp_path / "full"))), Scored(Repository(str(tmp_path / "empty")))
    full.base()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Predictor(tmp_path / "a", full) as well, Predictor(tmp_path / "b", empty) as starting:
        well.start()
        starting.start("--grpc-port", "0", paddle_default=True)
        well.wait_live(1)
        assert not starting.is_ready()

        sample = {"samples": [{"user": "1"}]}
        status, after, body = _post(starting.port, "/v1/models/ctr:predict", sample)
        assert (status, after, body["error"]["code"]) == (503, "1", "Unavailable")
        assert _post(starting.port, "/v2/models/ctr/infer", KSERVE)[:2] == (503, "1")
        assert _post(starting.port, "/v2/models/ctr/versions/1/infer", KSERVE)[:2] == (503, "1")
        status, after, body = _post(starting.port, "/GeneralModelService/inference", PADDLE)
        assert (status, after, body["err_no"]) == (503, "1", 2003)
        assert _post(starting.port, "/v1/models/other:predict", sample)[0] == 404

        with grpc.insecure_channel(f"127.0.0.1:{starting.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            with pytest.raises(grpc.RpcError) as raised:
                call(b"\x0a\x03ctr", timeout=60)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE

        urls = [f"http://127.0.0.1:{one.port}" for one in (starting, well)]
        samples = [one.json() for one in full.draw(np.random.default_rng(0), 3)]
        with PredictClient(urls, model="ctr") as client:
            for _ in range(50):
                assert client.predict(samples, values="feasigns", timeout_s=30).version == 1

        async def ask() -> None:
            async with AsyncPredictClient(urls, model="ctr") as client:
                for _ in range(50):
                    assert (await client.predict(samples, values="feasigns", timeout_s=30)).version == 1

        asyncio.run(ask())
        empty.base()
        starting.wait_live(1)
        assert _post(starting.port, "/v2/models/ctr/versions/1/infer", KSERVE)[0] == 200
