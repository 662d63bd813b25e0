"""`/dict/info`, `/instance/status` and `/dict/deploy/history`, in the shapes that tools of Paddle's Cube read."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from elasticctr.cube.shared.names import shard_directory
from elasticctr.cube.transfer.instance import Holding, Instance
from elasticctr.cube.transfer.process import TransferProcess
from elasticctr.cube.transfer.rollout import ModelRollout
from elasticctr.net.web import get

_STATES = {"building": (20, "Building"), "preparing": (40, "downloading"), "activating": (80, "enabling")}


def transfer_routes(process: TransferProcess) -> list[Route]:
    return PaddleTransfer(process).routes()


class PaddleTransfer:
    def __init__(self, process: TransferProcess) -> None:
        self._process = process

    def routes(self) -> list[Route]:
        return [
            get("/dict/info", lambda request: _reply(self._info(self._model(request)))),
            get("/instance/status", lambda request: _reply(self._instances(self._model(request)))),
            get("/dict/deploy/history", lambda request: _reply(self._history(self._model(request)))),
        ]

    def _model(self, request: Request) -> ModelRollout:
        models = self._process.models
        return models.get(request.query_params.get("dict_name", ""), next(iter(models.values())))

    def _info(self, rollout: ModelRollout) -> dict[str, Any]:
        settings, journal = self._process.settings, rollout.journal
        instances = self._instances(rollout)
        wanted = journal.rollout.version if journal.rollout is not None else journal.live
        holdings = [one.snapshot.models.get(rollout.model, Holding()) for one in self._process.fleet.instances]
        stored = sum(wanted in holding.versions for holding in holdings)
        loaded = sum(_state(holding, wanted) == "ready" for holding in holdings)
        return {
            "dict_name": rollout.model,
            "dict_mode": "base_delta",
            "shard_num": len(settings.shards),
            "copy_num": max(len(shard) for shard in settings.shards),
            "inst_num": len(instances),
            "deploy_path": "",
            "donefile_addr": settings.repository,
            "output_addr": str(settings.state / "builds"),
            "tmp_addr": str(settings.state),
            "download_mode": "http",
            "wget_port": str(self._process.web.port),
            "download_inst": stored,
            "reload_insts": loaded,
            "enable_insts": sum(holding.active == wanted for holding in holdings) if wanted else 0,
            "instances": instances,
            "wait_version_info": self._waiting(rollout),
            "current_version_info": self._history(rollout)[-2:],
        }

    def _instances(self, rollout: ModelRollout) -> list[dict[str, Any]]:
        return [self._instance(one, rollout) for one in self._process.fleet.instances]

    def _instance(self, one: Instance, rollout: ModelRollout) -> dict[str, Any]:
        journal = rollout.journal
        holding = one.snapshot.models.get(rollout.model, Holding())
        wanted = journal.rollout.version if journal.rollout is not None else journal.live
        last: dict[str, Any] = next((one for one in reversed(journal.history) if one["version"] == wanted), {})
        status_id, status = _instance_status(one, holding, wanted)
        ip, _, port = one.server.rpartition("//")[2].partition(":")
        agent_ip, _, agent_port = one.agent.rpartition("//")[2].partition(":")
        folder = shard_directory(one.shard, self._process.fleet.shards)
        return {
            "dict_name": rollout.model,
            "shard": one.shard,
            "source": f"{self._process.address}/v1/files/published/{rollout.model}/{wanted}/{folder}" if wanted else "",
            "ip": ip,
            "port": port,
            "agent_ip": agent_ip,
            "agent_port": agent_port,
            "status_id": status_id,
            "status": status,
            "builded_time": _whole(last.get("started")),
            "download_start_time": _whole(last.get("started")),
            "downloaded_time": _whole(last.get("decided")),
            "reload_start_time": _whole(last.get("started")),
            "reloaded_time": _whole(last.get("decided")),
            "enable_start_time": _whole(last.get("decided")),
            "enabled_time": _whole(last.get("finished")),
            "create_time": _whole(self._process.started_s),
        }

    def _waiting(self, rollout: ModelRollout) -> dict[str, Any]:
        current = rollout.journal.rollout
        if current is None:
            return _version(rollout, 0, 0, "", 0, 0, 0)
        status, text = _STATES.get(rollout.journal.state, (10, "Trigging"))
        parent = int(current.steps[-1].get("parent") or 0) if current.steps else 0
        return _version(rollout, current.version, status, text, 0, current.started, parent)

    def _history(self, rollout: ModelRollout) -> list[dict[str, Any]]:
        done = [one for one in rollout.journal.history if one["outcome"] == "done"]
        return [
            _version(rollout, one["version"], 90, "finished", one["finished"], one["started"], one["parent"])
            for one in done
        ]


def _instance_status(one: Instance, holding: Holding, wanted: int) -> tuple[int, str]:
    if not one.snapshot.is_usable:
        return 250, "dead"
    if wanted and holding.active == wanted:
        return 100, "finish_enable_succ"
    state = _state(holding, wanted)
    if state == "ready":
        return 70, "finish_reload_succ"
    if state == "failed":
        return 60, "finish_reload_failed"
    if state == "loading":
        return 50, "reloading"
    return (40, "finish_download_succ") if state == "stored" else (10, "init")


def _state(holding: Holding, version: int) -> str:
    found = holding.versions.get(version)
    return "" if found is None else found.state


def _version(
    rollout: ModelRollout, version: int, status: int, text: str, finished: float, created: float, parent: int
) -> dict[str, Any]:
    return {
        "dict_name": rollout.model,
        "version": version,
        "depend": parent or version,
        "id": str(version or ""),
        "key": str(parent or version or ""),
        "mode": "delta" if parent else "base",
        "input": "",
        "output": "",
        "status": status,
        "status_str": text,
        "finish_time": _whole(finished),
        "create_time": _whole(created),
        "meta_infos": {},
    }


def _whole(seconds: float | None) -> int:
    return int(seconds or 0)


def _reply(data: Any) -> dict[str, Any]:
    return {"success": "0", "message": "", "data": data}
