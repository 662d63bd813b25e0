"""A fleet for tests of KServe's metadata: one model with a live version, a variant and a version for rollback, one
without any."""

from __future__ import annotations

from typing import Any

from elasticctr.data.schema import Schema
from elasticctr.errors import NotFound, Unavailable
from elasticctr.versions.serving_schema import FeatureHash, ServingSchema

SCHEMA = ServingSchema(
    network="deepfm",
    fingerprint="f",
    feature_hash=FeatureHash(seed=0),
    samples=Schema.model_validate(
        {
            "format": "slot",
            "label": ["click", "buy"],
            "slots": [
                {"name": "user", "values": "string"},
                {"name": "item"},
                {"name": "age", "kind": "dense"},
                {"name": "vector", "kind": "dense", "dim": 3},
            ],
        }
    ),
    labels=("click", "buy"),
    pooled_width=0,
    dense_width=0,
    pooled=(),
    sequences=(),
    dense=(),
    tables={},
)


class FakeFleet:
    is_ready = True

    def status(self) -> dict[str, Any]:
        variants = [{"name": "b", "version": 6, "serving": True}, {"name": "c", "version": 4, "serving": False}]
        return {
            "ready": self.is_ready,
            "reason": None if self.is_ready else "empty: no version yet",
            "models": [
                {"name": "ctr", "live": 7, "variants": variants, "repository_error": None},
                {"name": "empty", "live": None, "variants": [], "repository_error": "the repository is away"},
            ],
        }

    def serving_schema(self, model: str, version: int | None = None) -> tuple[int, ServingSchema]:
        if model == "empty":
            raise Unavailable("empty: no version yet")
        if model != "ctr" or version not in (None, 5, 6, 7):
            raise NotFound(f"no model {model!r} {version or ''}")
        return version or 7, SCHEMA


METRICS = """# TYPE elasticctr_serve_requests_total counter
elasticctr_serve_requests_total{model="ctr",variant="live",version="7",code="OK"} 10
elasticctr_serve_requests_total{model="ctr",variant="b",version="7",code="OK"} 2
elasticctr_serve_requests_total{model="ctr",variant="live",version="7",code="DataError"} 3
elasticctr_serve_requests_total{model="ctr",variant="live",version="6",code="OK"} 1
# TYPE elasticctr_serve_samples_total counter
elasticctr_serve_samples_total{model="ctr",variant="live",version="7"} 500
# TYPE elasticctr_serve_request_seconds histogram
elasticctr_serve_request_seconds_bucket{model="ctr",variant="live",version="7",le="+Inf"} 10
elasticctr_serve_request_seconds_sum{model="ctr",variant="live",version="7"} 0.5
elasticctr_serve_request_seconds_count{model="ctr",variant="live",version="7"} 10
"""
