"""Small real HTTP stand-ins: a cube server's control API, a file host that misbehaves on demand, and builds."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticctr.config.tls import TlsSettings
from elasticctr.cube.shared.names import shard_directory
from elasticctr.errors import Corruption, FailedPrecondition, NotFound, Unavailable
from elasticctr.net.access import Tokens
from elasticctr.net.web import WebServer, accepted, get, make_app, post
from elasticctr.storage.atomic import write_json

TOKEN = "correct horse battery"


class Serving:
    """An app on a free port of this machine, in a thread."""

    def __init__(self, app: ASGIApp, tls: TlsSettings | None = None) -> None:
        self._web = WebServer(app, "127.0.0.1", 0, tls=tls)
        self.url = f"{self._web.scheme}://127.0.0.1:{self._web.port}"
        self._thread = threading.Thread(target=self._web.run, daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """`wait`: until the last answer is sent; otherwise it ends soon by itself."""
        self._web.stop()
        if wait:
            self._thread.join(timeout=60)


class FakeServer:
    """Answers the control API like a cube server: loads and checks versions in its data directory."""

    def __init__(self, data: Path, token: str | None = TOKEN) -> None:
        self.data = data
        self.models: dict[str, dict[int, dict[str, Any]]] = {}
        self.active: dict[str, int] = {}
        self.previous: dict[str, int] = {}
        self.calls: list[tuple[str, str, int]] = []
        self.refuse_loads = False
        self.load_s = 0.0
        self.is_down = False
        self.damage_next_load = False
        routes = [
            get("/v1/status", lambda _: self._status()),
            post("/v1/load", self._load),
            post("/v1/activate", self._activate),
            post("/v1/retire", self._retire),
        ]
        self._serving = Serving(make_app(routes, Tokens(token)))
        self.url = self._serving.url

    def restart_empty(self) -> None:
        self.models, self.active, self.previous = {}, {}, {}

    def stop(self, *, wait: bool = False) -> None:
        self._serving.stop(wait=wait)

    def _check(self) -> None:
        if self.is_down:
            raise Unavailable("down")

    def _status(self) -> dict[str, Any]:
        self._check()
        models = [
            {
                "name": name,
                "active": self.active.get(name, 0),
                "previous": self.previous.get(name, 0),
                "versions": list(versions.values()),
            }
            for name, versions in self.models.items()
        ]
        return {"ready": bool(models) and all(self.active.get(name) for name in self.models), "models": models}

    def _load(self, body: dict[str, Any]) -> Any:
        self._check()
        model, version = body["model"], body["version"]
        self.calls.append(("load", model, version))
        versions = self.models.setdefault(model, {})
        if versions.get(version, {}).get("state") == "ready":
            return {"state": "ready"}
        folder = self.data / model / str(version)
        if not (folder / "shard.json").exists():
            raise NotFound(f"{folder}: no such version")
        listing = json.loads((folder / "shard.json").read_text())
        if listing["parent"] and versions.get(listing["parent"], {}).get("state") != "ready":
            raise FailedPrecondition(f"version {version} stands on {listing['parent']}, which is not resident")
        entry = {"version": version, "parent": listing["parent"], "state": "loading", "error": ""}
        versions[version] = entry
        damage, self.damage_next_load = self.damage_next_load, False
        threading.Thread(target=self._finish_load, args=(folder, listing, entry, damage), daemon=True).start()
        return accepted({"state": "loading"})

    def _finish_load(self, folder: Path, listing: dict[str, Any], entry: dict[str, Any], damage: bool) -> None:
        began_s = time.monotonic()
        while time.monotonic() < began_s + self.load_s:  # which may be made shorter meanwhile
            time.sleep(0.005)
        try:
            for file in listing["files"]:
                data = (folder / file["name"]).read_bytes()
                if damage or hashlib.sha256(data).hexdigest() != file["sha256"]:
                    raise Corruption(f"{file['name']}: block 0 fails its checksum")
            if self.refuse_loads:
                raise Corruption("refused")
            entry["state"] = "ready"
        except (Corruption, OSError) as e:
            entry["error"], entry["state"] = f"{type(e).__name__}: {e}", "failed"

    def _activate(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check()
        model, version = body["model"], body["version"]
        self.calls.append(("activate", model, version))
        if self.models.get(model, {}).get(version, {}).get("state") != "ready":
            raise NotFound(f"version {version} of {model} is not resident")
        if self.active.get(model) != version:
            self.previous[model] = self.active.get(model, 0)
            self.active[model] = version
            write_json(self.data / model / "LIVE", {"version": version, "previous": self.previous[model]})
        return {"active": version, "previous": self.previous.get(model, 0)}

    def _retire(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check()
        model, version = body["model"], body["version"]
        self.calls.append(("retire", model, version))
        if self.active.get(model) == version:
            raise FailedPrecondition("active")
        if self.models.get(model, {}).pop(version, None) is None:
            raise NotFound("not resident")
        return {}


class FileHost:
    """Serves a directory with ranges. `fault(path, body) -> body | None`: what is sent instead; None cuts the line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, bytes], bytes] | None = None
        self.ignore_range = False
        self.cut_after: int | None = None
        route = Route("/{path:path}", self._answer, methods=["GET"])
        self._serving = Serving(make_app([route], Tokens(TOKEN)))
        self.url = self._serving.url

    def stop(self, *, wait: bool = False) -> None:
        self._serving.stop(wait=wait)

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["path"]
        wanted = request.headers.get("range", "")
        self.requests.append((name, wanted))
        path = self.root / name
        if not path.is_file():
            return Response(status_code=404)
        body = path.read_bytes()
        if self.fault is not None:
            body = self.fault(name, body)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not self.ignore_range else 0
        if start and start >= len(body):
            return Response(status_code=416)
        status = 206 if start else 200
        headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        rest = body[start:]
        if self.cut_after is not None and len(rest) > self.cut_after:
            # Announces the whole length but sends a part: the connection breaks.
            return _CutResponse(rest[: self.cut_after], status, headers | {"Content-Length": str(len(rest))})
        return Response(rest, status, headers)


class _CutResponse(Response):
    def init_headers(self, headers: Any = None) -> None:
        self.raw_headers = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        raise ConnectionResetError("cut on purpose")


def make_build(
    root: Path, model: str = "ctr", version: int = 1, *, parent: int = 0, shards: int = 2, bytes_each: int = 100_000
) -> str:
    """A builder's output with made-up index files. Returns the SHA-256 of its build.json."""
    folder = root / model / str(version)
    origin = {"format": 1, "model": model, "version": version, "kind": "delta" if parent else "base"}
    origin |= {"parent": parent, "shards": shards, "sharding": "buckets"}
    listed = []
    for shard in range(shards):
        directory = folder / shard_directory(shard, shards)
        directory.mkdir(parents=True)
        data = random.Random(f"{model}/{version}/{shard}").randbytes(bytes_each)
        (directory / "embedding.cube").write_bytes(data)
        file = {"table": "embedding", "name": "embedding.cube", "bytes": len(data), "rows": 10, "tombstones": 0}
        file["sha256"] = hashlib.sha256(data).hexdigest()
        text = json.dumps({**origin, "shard": shard, "files": [file]}).encode()
        (directory / "shard.json").write_bytes(text)
        name = f"{directory.name}/shard.json"
        listed.append({"name": name, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()})
    text = json.dumps({**origin, "shard_files": listed, "rows": 20, "bytes": 2 * bytes_each}).encode()
    (folder / "build.json").write_bytes(text)
    return hashlib.sha256(text).hexdigest()


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
