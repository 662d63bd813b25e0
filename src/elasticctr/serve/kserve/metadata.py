"""KServe V2 (Open Inference) apart from predictions: metadata, readiness, the list of models, statistics.

Answers are the protocol's JSON objects; `pages.py` puts them on HTTP paths, `grpc_server.py` into messages. All data
comes from the fleet's status and the schemas of its versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

from elasticctr import __version__
from elasticctr.data.schema import Format, SparseSlot
from elasticctr.errors import DataError, NotFound
from elasticctr.versions.serving_schema import ServingSchema

PLATFORM = "elasticctr"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")
_CONFIG_TYPES = {"FP32": "TYPE_FP32", "UINT64": "TYPE_UINT64", "BYTES": "TYPE_STRING"}


class ModelDirectory(Protocol):
    """What the fleet reports about its models."""

    def status(self) -> dict[str, Any]: ...

    def serving_schema(self, model: str, version: int | None = None) -> tuple[int, ServingSchema]:
        """The number and schema of a version that is ready, by default the live one. Raises NotFound, Unavailable."""
        ...


@dataclass(frozen=True)
class TensorInfo:
    name: str
    datatype: str
    shape: tuple[int, ...]  # -1: any

    def metadata(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


def describe_server() -> dict[str, Any]:
    return {"name": PLATFORM, "version": __version__, "extensions": list(EXTENSIONS)}


def describe_model(fleet: ModelDirectory, model: str, version: str = "") -> dict[str, Any]:
    """Raises NotFound, DataError (no version number), Unavailable (no version yet)."""
    schema = _find_schema(fleet, model, version)
    return {
        "name": model,
        "versions": [str(one) for one in _answering(_status_of(fleet, model))],
        "platform": PLATFORM,
        "inputs": [tensor.metadata() for tensor in list_inputs(schema)],
        "outputs": [tensor.metadata() for tensor in list_outputs(schema)],
    }


def configure_model(fleet: ModelDirectory, model: str, version: str = "") -> dict[str, Any]:
    """Triton's model configuration, as far as it applies."""
    schema = _find_schema(fleet, model, version)
    return {
        "name": model,
        "platform": "",
        "backend": PLATFORM,
        "max_batch_size": 0,
        "input": [
            {"name": t.name, "data_type": _CONFIG_TYPES[t.datatype], "dims": list(t.shape), "optional": True}
            for t in list_inputs(schema)
        ],
        "output": [
            {"name": t.name, "data_type": _CONFIG_TYPES[t.datatype], "dims": list(t.shape)}
            for t in list_outputs(schema)
        ],
    }


def list_inputs(schema: ServingSchema) -> list[TensorInfo]:
    """One per slot, in the schema's order."""
    are_strings = schema.samples.format in (Format.CRITEO, Format.CSV)
    tensors = []
    for slot in schema.samples.logged:
        if not isinstance(slot, SparseSlot):
            tensors.append(TensorInfo(slot.name, "FP32", (-1, slot.dim)))
        elif slot.values == "string" or (slot.values == "auto" and are_strings):
            tensors.append(TensorInfo(slot.name, "BYTES", (-1, -1)))
        else:
            tensors.append(TensorInfo(slot.name, "UINT64", (-1, -1)))
    return tensors


def list_outputs(schema: ServingSchema) -> list[TensorInfo]:
    return [TensorInfo("scores", "FP32", (-1, len(schema.labels)))]


def is_server_ready(fleet: ModelDirectory) -> tuple[bool, str]:
    status = fleet.status()
    return bool(status["ready"]), status.get("reason") or ""


def is_model_ready(fleet: ModelDirectory, model: str, version: str = "") -> bool:
    """False for a version that does not answer. Raises NotFound for an unknown model."""
    number, answering = parse_version(version), _answering(_status_of(fleet, model))
    return bool(answering) if number is None else number in answering


def list_models(fleet: ModelDirectory, only_ready: bool = False) -> list[dict[str, str]]:
    """Triton's repository index: every version that answers, and models that have none."""
    models = []
    for status in fleet.status()["models"]:
        versions = _answering(status)
        for version in versions:
            models.append({"name": status["name"], "version": str(version), "state": "READY", "reason": ""})
        if not versions and not only_ready:
            reason = status.get("repository_error") or "no version yet"
            models.append({"name": status["name"], "version": "", "state": "UNAVAILABLE", "reason": reason})
    return models


def collect_statistics(metrics: str, model: str = "", version: str = "") -> list[dict[str, Any]]:
    """Triton's statistics of a model's versions since the server started, from the server's Prometheus text."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            key = sample.labels.get("model", ""), sample.labels.get("version", "")
            if "" in key or (model and key[0] != model) or (version and key[1] != version):
                continue
            what = _STATISTICS.get(sample.name.removeprefix("elasticctr_"))
            if what == "requests":
                what = "success" if sample.labels.get("code") == "OK" else "fail"
            if what is not None:
                sums = found.setdefault(key, {})
                sums[what] = sums.get(what, 0) + sample.value
    return [_statistic(*key, found[key]) for key in sorted(found)]


_STATISTICS = {
    "serve_requests_total": "requests",
    "serve_samples_total": "samples",
    "serve_request_seconds_sum": "seconds",
}


def _statistic(model: str, version: str, sums: dict[str, float]) -> dict[str, Any]:
    succeeded, failed = int(sums.get("success", 0)), int(sums.get("fail", 0))
    return {
        "name": model,
        "version": version,
        "inference_count": int(sums.get("samples", 0)),
        "execution_count": succeeded,
        "inference_stats": {
            "success": {"count": succeeded, "ns": int(sums.get("seconds", 0) * 1e9)},
            "fail": {"count": failed, "ns": 0},
        },
    }


def parse_version(version: str) -> int | None:
    if not version:
        return None
    if not (version.isascii() and version.isdigit()) or len(version) > 18:
        raise DataError(f"{version[:80]!r} is not a version; give a whole number")
    return int(version)


def _find_schema(fleet: ModelDirectory, model: str, version: str) -> ServingSchema:
    number, answering = parse_version(version), _answering(_status_of(fleet, model))
    if number is not None and number not in answering:
        raise NotFound(f"model {model!r} does not serve version {number}")
    return fleet.serving_schema(model, number)[1]


def _answering(status: Mapping[str, Any]) -> list[int]:
    """The live version and those of variants. Versions kept for a rollback cannot be named by requests."""
    versions = {one["version"] for one in status["variants"] if one["serving"]}
    return sorted(versions if status["live"] is None else versions | {status["live"]})


def _status_of(fleet: ModelDirectory, model: str) -> dict[str, Any]:
    models: list[dict[str, Any]] = fleet.status()["models"]
    for status in models:
        if status["name"] == model:
            return status
    raise NotFound(
        f"no model {model[:80]!r}; this server has {', '.join(status['name'] for status in models) or 'none'}"
    )
