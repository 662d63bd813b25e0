"""FastAPI on uvicorn (uvloop, httptools, orjson), rows from Redis: `FOLDER PORT REDIS_PORT async|blocking`.

async: redis.asyncio. blocking: the plain client in the event loop, cheaper per request where one core does it all.
"""

from __future__ import annotations

import sys

import orjson
import redis
import redis.asyncio
import uvicorn
from fastapi import FastAPI, Request, Response
from predict_scoring import Scorer

folder, port, redis_port, variant = sys.argv[1:5]
scorer = Scorer(folder)
app = FastAPI()


def answer(scores: object) -> Response:
    body = orjson.dumps({"scores": scores}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json")


if variant == "async":
    rows_later = redis.asyncio.Redis(port=int(redis_port))

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        asked = orjson.loads(await request.body())
        return answer(scorer.score(asked, await rows_later.mget(scorer.keys(asked))))

else:
    rows_now = redis.Redis(port=int(redis_port))

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        asked = orjson.loads(await request.body())
        return answer(scorer.score(asked, rows_now.mget(scorer.keys(asked))))


if __name__ == "__main__":
    uvicorn.run(
        app, host="127.0.0.1", port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="error"
    )
