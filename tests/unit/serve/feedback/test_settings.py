"""Settings of the request log, and mistakes in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from elasticctr import _native
from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError, DataError
from elasticctr.serve.feedback.settings import RequestLogSettings


def test_settings_make_a_log(tmp_path: Path) -> None:
    settings = RequestLogSettings(directory=str(tmp_path / "log"), sample=1.0, body_kib=0.01)
    log = _native.RequestLog(**settings.native())
    slots = ["user", "item"]
    rows = [[(0, [2**64 - 1])], [(1, [3, 4])]]
    assert log.add(10.5, "a", "ctr", 7, "live", "json", b"{}", slots, [("I1", 1)], rows, [[0.5]], [[0.25]])
    assert log.add(11.0, "b", "ctr", 7, "live", "brpc", b"\xff\x00", slots, [], [[], []], [], [[0.25, 0.75]])
    assert log.add(12.0, "c", "ctr", 7, "live", "json", b"x" * 11, slots, [], [[]], [], [])
    log.stop()
    (file,) = (tmp_path / "log").iterdir()
    first, second, third = (json.loads(line) for line in file.read_text().splitlines())
    assert file.name.endswith(".jsonl")
    assert first["shared"] == {"user": [2**64 - 1]}
    assert first["samples"] == [{"slots": {"item": [3, 4]}, "dense": {"I1": [0.5]}, "scores": [0.25]}]
    assert first["request"] == "{}"
    assert first["time"] == 10.5
    assert second["request_base64"] == "/wA="
    assert second["samples"] == [{"slots": {}, "scores": [0.25, 0.75]}]
    assert "request" not in third
    assert third["request_bytes"] == 11
    assert (log.written, log.dropped, log.failed, log.removed) == (3, 0, 0, 0)


def test_bad_rows_and_settings_are_refused(tmp_path: Path) -> None:
    log = _native.RequestLog(str(tmp_path))
    bad: list[tuple[Any, Any, Any]] = [
        ([], [], []),
        ([[(9, [1])]], [], []),
        ([[], []], [], []),
        ([[], []], [[1.0]] * 2, [[1.0]]),
    ]
    for rows, dense, scores in bad:
        with pytest.raises(DataError):
            log.add(1.0, "a", "m", 1, "v", "json", b"", ["s"], [("d", 1)], rows, dense, scores)
    with pytest.raises(ConfigError, match="sample"):
        parse_settings(RequestLogSettings, {"directory": "x", "sample": 2}, "serve.yaml")
