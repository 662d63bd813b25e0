"""The commands of the API: their calls of the fleet, what they refuse, and the one shape of errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.serve.live import RememberingFleet
from tests.unit.serve.making import make_schema

from elasticctr import errors
from elasticctr.serve.control import Control, ControlResponse, error_response, json_response
from elasticctr.serve.openapi.document import describe, render_page

STATUS = {"name": "ctr", "live": 7, "ready": [{"version": 7}], "variants": []}


@pytest.fixture
def fleet() -> RememberingFleet:
    return RememberingFleet(make_schema())


def call(fleet: RememberingFleet, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    response = Control(fleet).handle(method, path, "", content)
    assert response.content_type == "application/json"
    return response.status, json.loads(response.body)


def test_reads(fleet: RememberingFleet) -> None:
    assert call(fleet, "GET", "/v1/status")[1]["ready"] is True
    assert call(fleet, "GET", "/v1/models") == (200, {"models": [STATUS]})
    assert call(fleet, "GET", "/v1/models/ctr") == (200, STATUS)
    assert call(fleet, "GET", "/v1/models/%63tr")[0] == 200
    assert call(fleet, "GET", "/v1/models/other")[0] == 404


def test_commands_reach_the_fleet(fleet: RememberingFleet) -> None:
    variants = [{"name": "b", "version": 8, "weight": 0.1}]
    body: Any
    for action, body in [
        ("activate", {"version": 8}),
        ("pause", None),
        ("resume", {}),
        ("variants", {"variants": variants, "sticky": "user_id"}),
        ("variants", {"variants": []}),
        ("promote", {"variant": "b"}),
    ]:
        assert call(fleet, "POST", f"/v1/models/ctr:{action}", body) == (200, STATUS)
    assert fleet.told == [
        ("activate", 8),
        ("pause",),
        ("resume",),
        ("variants", variants, "user_id"),
        ("variants", [], None),
        ("promote", "b"),
    ]


@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    [
        (412, "POST", "/v1/models/ctr:rollback", None),
        (404, "POST", "/v1/models/other:pause", None),
        (404, "POST", "/v1/models/ctr:delete", None),
        (404, "POST", "/v1/models/:pause", None),
        (404, "GET", "/v1/models/a/b", None),
        (404, "GET", "/", None),
        (405, "GET", "/v1/models/ctr:activate", None),
        (405, "POST", "/v1/models/ctr", None),
        (405, "DELETE", "/v1/models", None),
        (400, "POST", "/v1/models/ctr:activate", None),
        (400, "POST", "/v1/models/ctr:activate", {"version": "8"}),
        (400, "POST", "/v1/models/ctr:activate", {"version": True}),
        (400, "POST", "/v1/models/ctr:activate", {"version": 0}),
        (400, "POST", "/v1/models/ctr:activate", {"version": 1.5}),
        (400, "POST", "/v1/models/ctr:activate", {"version": 8, "force": True}),
        (400, "POST", "/v1/models/ctr:pause", {"for": 5}),
        (400, "POST", "/v1/models/ctr:variants", {"variants": ["b"]}),
        (400, "POST", "/v1/models/ctr:promote", {"variant": None}),
        (400, "POST", "/v1/models/ctr:promote", b"["),
        (400, "POST", "/v1/models/ctr:promote", b"[]"),
        (400, "POST", "/v1/models/ctr:promote", b"[" * 100_000),
        (400, "POST", "/v1/models/ctr:promote", b'{"variant": "a", "variant": "b"}'),
        (400, "POST", "/v1/models/ctr:activate", b'{"version": NaN}'),
        (400, "POST", "/v1/models/ctr:promote", b"\xff"),
    ],
)
def test_refusals_have_one_shape(fleet: RememberingFleet, status: int, method: str, path: str, body: Any) -> None:
    given, answer = call(fleet, method, path, body)
    assert given == status, answer
    assert set(answer) == {"error"} and set(answer["error"]) == {"code", "message"}
    assert answer["error"]["message"] and not fleet.told


def test_a_fault_is_told_without_its_traceback(fleet: RememberingFleet, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> dict[str, Any]:
        raise ZeroDivisionError("secret")

    fleet.status = broken  # type: ignore[method-assign]
    status, answer = call(fleet, "GET", "/v1/status")
    assert status == 500 and answer["error"]["code"] == "InternalError" and "secret" not in str(answer)
    assert "ZeroDivisionError" in caplog.text


def test_statuses_of_errors() -> None:
    expected = {
        errors.ConfigError: 400, errors.DataError: 400, errors.NotFound: 404, errors.AlreadyExists: 409,
        errors.Corruption: 500, errors.FailedPrecondition: 412, errors.Unauthorized: 401, errors.Unavailable: 503,
        errors.DeadlineExceeded: 504, errors.InternalError: 500,
    }  # fmt: skip
    for kind, status in expected.items():
        assert error_response(kind("why")).status == status
    assert ("Retry-After", "3") in error_response(errors.Unavailable("later", 2.6)).headers


def test_other_protocols_add_pages(fleet: RememberingFleet) -> None:
    def pages(method: str, path: str, query: str, body: bytes) -> ControlResponse | None:
        return json_response([method, path, query, body.decode()], 202) if path == "/v2" else None

    control = Control(fleet, [pages])
    assert control.handle("GET", "/v2", "a=b", b"x").body == b'["GET", "/v2", "a=b", "x"]'
    assert control.handle("GET", "/v1/status", "", b"").status == 200


def test_the_description_is_whole_and_the_page_loads_nothing() -> None:
    document = describe()
    text = json.dumps(document)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in document["components"]["schemas"]
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    page = render_page()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    for path in document["paths"]:
        assert path in page
