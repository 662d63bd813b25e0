"""BentoML, rows from Redis: `FOLDER PORT REDIS_PORT plain|batched`. batched: its adaptive batching, one MGET and one
run of the graph per batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bentoml
import redis
import redis.asyncio
from predict_scoring import Scorer


@bentoml.service(workers=1, traffic={"timeout": 30, "max_concurrency": 1000}, logging={"access": {"enabled": False}})
class Predict:
    def __init__(self) -> None:
        self.scorer = Scorer(os.environ["PREDICT_FOLDER"])
        self.redis_later = redis.asyncio.Redis(port=int(os.environ["PREDICT_REDIS"]))
        self.redis_now = redis.Redis(port=int(os.environ["PREDICT_REDIS"]))

    @bentoml.api(route="/predict")
    async def predict(self, request: dict[str, Any], /) -> dict[str, Any]:
        rows = await self.redis_later.mget(self.scorer.keys(request))
        return {"scores": self.scorer.score(request, rows).tolist()}

    @bentoml.api(route="/predict_batched", batchable=True, max_batch_size=64, max_latency_ms=1000)
    def predict_batched(self, requests: list[dict[str, Any]], /) -> list[dict[str, Any]]:
        rows = self.redis_now.mget([key for request in requests for key in self.scorer.keys(request)])
        return [{"scores": scores.tolist()} for scores in self.scorer.score_many(requests, rows)]


if __name__ == "__main__":
    folder, port, redis_port, _ = sys.argv[1:5]
    os.environ |= {"PREDICT_FOLDER": folder, "PREDICT_REDIS": redis_port, "BENTOML_DO_NOT_TRACK": "True"}
    here = str(Path(__file__).resolve().parent)
    command = ["-m", "bentoml", "serve", "predict_bentoml:Predict", "--working-dir", here, "--host", "127.0.0.1"]
    os.execv(sys.executable, [sys.executable, *command, "--port", port])
