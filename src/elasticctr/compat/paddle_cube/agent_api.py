"""`POST /agent/cmd` and `GET /agent/status` for the transfer of Paddle Serving's Cube, on the same agent.

Commands: download, reload, enable, check, clear, pop. `source` is the URL of a shard's directory as our builder makes
it (an archive of Paddle's builder is refused), `version_sign` its shard.json's SHA-256 if given. Paths, services and
addresses in a request are ignored: nothing from it reaches a shell or leaves the data directory.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from elasticctr.cube.agent.agent import Agent
from elasticctr.cube.agent.request import parse_prepare
from elasticctr.cube.shared.names import check_model
from elasticctr.errors import DataError, DeadlineExceeded, ElasticCTRError
from elasticctr.net.web import get, post
from elasticctr.versions.manifest import check_version

# Paddle's transfer gives up after 120 s.
_WAIT_S = 110.0
_OK, _BAD_REQUEST, _FAILED = "0", "2", "255"


def agent_routes(agent: Agent) -> list[Route]:
    paddle = PaddleAgent(agent)
    return [post("/agent/cmd", paddle.command), get("/agent/status", lambda _: paddle.status())]


class PaddleAgent:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def status(self) -> dict[str, Any]:
        return _reply(_OK, "", {"status": "RUNNING", "version": "3.0.0.1"})

    def command(self, body: dict[str, Any]) -> JSONResponse:
        """Paddle's transfer reads `success`, not the HTTP status."""
        try:
            return JSONResponse(_reply(_OK, "", self._do(body)))
        except DataError as e:
            return JSONResponse(_reply(_BAD_REQUEST, str(e), ""), 400)
        except ElasticCTRError as e:
            return JSONResponse(_reply(_FAILED, f"{e.code}: {e}", ""), 500)

    def _do(self, body: dict[str, Any]) -> Any:
        command, model = body.get("command"), check_model(body.get("dict_name"))
        if command == "check":
            return self._describe(model)
        version = check_version(_whole(body.get("version")))
        if command not in ("download", "reload", "enable", "clear", "pop"):
            raise DataError(f"unknown command {command!r}; known: download, reload, enable, check, clear, pop")
        self._agent.lease.check(None)
        if command == "download":
            return self._download(model, version, body)
        if command == "enable":
            return self._agent.activate(model, version)
        if command in ("clear", "pop"):
            return self._agent.retire(model, version)
        # Nothing to do: downloading has already loaded it.
        return self._describe(model)

    def _download(self, model: str, version: int, body: dict[str, Any]) -> Any:
        prepare = {"model": model, "version": version, "source": body.get("source")}
        if body.get("version_sign"):
            prepare["sha256"] = body["version_sign"]
        job = self._agent.prepare(parse_prepare(prepare))
        if not job.finished.wait(_WAIT_S):
            raise DeadlineExceeded(f"version {version} of {model} is still being fetched; try again")
        if job.error is not None:
            raise job.error
        return self._describe(model)

    def _describe(self, model: str) -> dict[str, Any]:
        status = self._agent.server.model(model)
        ready = [str(version) for version in status.versions if status.is_ready(version)]
        background = [version for version in ready if version != str(status.active)]
        return {
            "cur_version": str(status.active or ""),
            "bg_version": background[-1] if background else "",
            "active_version_list": ready,
        }


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value


def _reply(success: str, message: str, data: Any) -> dict[str, Any]:
    return {"success": success, "message": message, "data": data}
