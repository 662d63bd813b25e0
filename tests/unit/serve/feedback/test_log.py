"""Request logs that are torn, foreign or damaged; a full disk."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.unit.serve.feedback.writing import HOUR, write_requests

from elasticctr.data.schema import Schema
from elasticctr.errors import DataError, NotFound
from elasticctr.serve.feedback.decode import decode
from elasticctr.serve.feedback.log import LoggedRequest, list_logs, parse_line, read_lines


@pytest.fixture
def line(tmp_path: Path) -> bytes:
    write_requests(tmp_path / "log", [(HOUR, "a", [{"user": [1], "item": [2**64 - 1]}, {"user": [1], "item": [3, 4]}])])
    (path,) = list_logs([tmp_path / "log"])
    ((after, line),) = list(read_lines(path))
    assert after == path.stat().st_size
    return line


def test_shared_values_are_every_samples(line: bytes) -> None:
    request = parse_line(line, "log")
    assert request.values_of(0) == {"user": [1], "item": [2**64 - 1]}
    assert request.values_of(1) == {"user": [1], "item": [3, 4]}
    assert (request.time, request.version, request.body) == (HOUR, 1, b"{}")


def test_damaged_lines_are_data_errors(line: bytes) -> None:
    pick = random.Random(5)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(line)
        for _ in range(pick.randint(1, 4)):
            at = pick.randrange(len(damaged))
            damaged[at : at + pick.randint(0, 3)] = bytes(pick.randrange(256) for _ in range(pick.randint(0, 3)))
        try:
            parse_line(bytes(damaged), "log", 7)
        except DataError as e:
            refused += 1
            assert "log:7" in str(e)
    assert refused > 1000
    for wrong in (b"", b"null", b"[]", b"{}", b'{"format": 2}', b"[" * 5000):
        with pytest.raises(DataError):
            parse_line(wrong, "log")
    with pytest.raises(NotFound, match="--request-log"):
        list_logs(["/nowhere/at/all"])


def test_damaged_requests_are_data_errors() -> None:
    schema = Schema.model_validate({"slots": [{"name": "user"}, {"name": "ad", "values": "string"}]})
    tensor = {"name": "ad", "datatype": "BYTES", "shape": [1], "data": ["x"]}
    bodies = {
        "json": json.dumps({"samples": [{"user": [1, 2], "ad": "x"}]}).encode(),
        "kserve": json.dumps({"inputs": [tensor]}).encode(),
        "paddle": json.dumps({"feed": [{"user": [[1]], "ad": [["x"]]}]}).encode(),
        "kserve_grpc": b"\x0a\x03ctr\x2a\x13\x0a\x02ad\x12\x05BYTES\x1a\x01\x01\x2a\x03\x42\x01x",
        "brpc": b"\x0a\x16\x0a\x14.GeneralModelService\x0a\x0d\x0a\x01\x05\x5a\x02\x01\x01\x6a\x04user",
    }
    pick = random.Random(6)
    for protocol, body in bodies.items():
        for turn in range(600):
            damaged = bytearray(body)
            if turn:
                damaged[pick.randrange(len(damaged))] = pick.randrange(256)
                del damaged[pick.randrange(1, len(damaged) + 1) :]
            request = LoggedRequest(
                1.0, "a", "m", 1, "live", protocol, "", 24 if protocol == "brpc" else 0, bytes(damaged), {}, [], False
            )
            try:
                decoded = decode(request, schema)
            except DataError:
                assert turn
                continue
            assert turn or decoded is not None, protocol
