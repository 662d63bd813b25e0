"""Ray Serve, rows from Redis: `FOLDER PORT REDIS_PORT plain|batched`. batched: serve.batch, one MGET and one run of the
graph per batch."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import ray
import redis
import redis.asyncio
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

HERE = str(Path(__file__).resolve().parent)


@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
class Predict:
    def __init__(self, folder: str, redis_port: int, batched: bool) -> None:
        sys.path.insert(0, HERE)
        from predict_scoring import Scorer

        self.scorer = Scorer(folder)
        self.batched = batched
        self.redis_later = redis.asyncio.Redis(port=redis_port)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0005)
    async def score_many(self, requests: list[dict[str, Any]]) -> list[Any]:
        rows = await self.redis_later.mget([key for request in requests for key in self.scorer.keys(request)])
        return self.scorer.score_many(requests, rows)

    async def __call__(self, request: Request) -> Response:
        asked = orjson.loads(await request.body())
        if self.batched:
            scores = await self.score_many(asked)
        else:
            scores = self.scorer.score(asked, await self.redis_later.mget(self.scorer.keys(asked)))
        body = orjson.dumps({"scores": scores}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(body, media_type="application/json")


if __name__ == "__main__":
    folder, port, redis_port, variant = sys.argv[1:5]
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)}, logging_config={"enable_access_log": False})
    serve.run(Predict.bind(folder, int(redis_port), variant == "batched"), route_prefix="/predict")
    ended.wait()
    serve.shutdown()
    ray.shutdown()
