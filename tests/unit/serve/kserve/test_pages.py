"""KServe's HTTP paths besides predictions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.serve.kserve.fleet import METRICS, FakeFleet

from elasticctr.serve.kserve.pages import KServePages


def ask(path: str, method: str = "GET", body: bytes = b"", fleet: FakeFleet | None = None) -> tuple[int, Any]:
    response = KServePages(fleet or FakeFleet(), lambda: METRICS)(method, path, "", body)
    assert response is not None
    return response.status, json.loads(response.body)


def test_paths_of_others_are_left_to_them() -> None:
    pages = KServePages(FakeFleet(), lambda: METRICS)
    assert pages("GET", "/v1/models", "", b"") is None
    assert pages("GET", "/v20", "", b"") is None


def test_server_metadata_and_health() -> None:
    status, server = ask("/v2")
    assert (status, server["name"]) == (200, "elasticctr")
    assert "binary_tensor_data" in server["extensions"]
    assert ask("/v2/health/live") == (200, {"live": True})
    assert ask("/v2/health/ready") == (200, {"ready": True})
    fleet = FakeFleet()
    fleet.is_ready = False
    assert ask("/v2/health/ready", fleet=fleet) == (503, {"error": "empty: no version yet"})


def test_model_metadata_lists_slots_and_scores() -> None:
    expected = {
        "name": "ctr",
        "versions": ["6", "7"],
        "platform": "elasticctr",
        "inputs": [
            {"name": "user", "datatype": "BYTES", "shape": [-1, -1]},
            {"name": "item", "datatype": "UINT64", "shape": [-1, -1]},
            {"name": "age", "datatype": "FP32", "shape": [-1, 1]},
            {"name": "vector", "datatype": "FP32", "shape": [-1, 3]},
        ],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}],
    }
    assert ask("/v2/models/ctr") == (200, expected)
    assert ask("/v2/models/ctr/versions/6") == (200, expected)


def test_model_configuration() -> None:
    status, config = ask("/v2/models/ctr/config")
    assert (status, config["max_batch_size"]) == (200, 0)
    assert config["input"][1] == {"name": "item", "data_type": "TYPE_UINT64", "dims": [-1, -1], "optional": True}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/models/ctr/ready", 200),
        ("/v2/models/ctr/versions/7/ready", 200),
        ("/v2/models/ctr/versions/8/ready", 503),
        ("/v2/models/ctr/versions/5/ready", 503),
        ("/v2/models/ctr/versions/5", 404),
        ("/v2/models/empty/ready", 503),
        ("/v2/models/empty", 503),
        ("/v2/models/nobody/ready", 404),
        ("/v2/models/nobody", 404),
        ("/v2/models/ctr/versions/8", 404),
        ("/v2/models/ctr/versions/seven", 400),
        ("/v2/models/ctr/versions/-7", 400),
        ("/v2/models/ctr/something", 404),
        ("/v2/something", 404),
        ("/v2/models/ctr/infer", 405),
    ],
)
def test_statuses(path: str, expected: int) -> None:
    status, body = ask(path)
    assert status == expected
    assert status == 200 or isinstance(body["error"], str)


def test_repository_index() -> None:
    ready = [{"name": "ctr", "version": version, "state": "READY", "reason": ""} for version in ("6", "7")]
    empty = {"name": "empty", "version": "", "state": "UNAVAILABLE", "reason": "the repository is away"}
    assert ask("/v2/repository/index", "POST") == (200, [*ready, empty])
    assert ask("/v2/repository/index", "POST", b'{"ready": true}') == (200, ready)
    for body in (b"{", b"[]", b"null", b'{"ready": 1}', b'{"ready": {}}', b'{"ready": null}'):
        assert ask("/v2/repository/index", "POST", body)[0] == 400, body
    assert ask("/v2", "POST")[0] == 405


def test_statistics_add_up_variants() -> None:
    status, answer = ask("/v2/models/ctr/versions/7/stats")
    assert status == 200
    assert answer["model_stats"] == [
        {
            "name": "ctr",
            "version": "7",
            "inference_count": 500,
            "execution_count": 12,
            "inference_stats": {"success": {"count": 12, "ns": 500_000_000}, "fail": {"count": 3, "ns": 0}},
        }
    ]
    assert [one["version"] for one in ask("/v2/models/stats")[1]["model_stats"]] == ["6", "7"]
    assert ask("/v2/models/nobody/stats")[0] == 404
