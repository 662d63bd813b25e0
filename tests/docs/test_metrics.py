"""Every metric a server exports is in docs/reference/metrics.md, and nothing else is."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.unit.serve.live import live_server

from elasticctr.serve.activation import fleet as activation
from elasticctr.serve.feedback.settings import RequestLogSettings

LABELS = 'model="ctr",variant="live",version="7"'
COUNTED = (
    f'serve_requests_total{{{LABELS},code="OK"}} 1\n',
    'serve_protocol_requests_total{protocol="json",code="DataError"} 1\n',
)
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "metrics.md"


def test_metrics_are_those_documented(tmp_path: Path) -> None:
    request_log = RequestLogSettings(directory=str(tmp_path / "requests"))
    with live_server(tmp_path, access_log=tmp_path / "access.log", request_log=request_log) as live:
        assert live.post({"samples": [{}]}).status_code == 200
        assert live.post({"samples": [{"nobody": 1}]}).status_code == 400
        text = ""
        deadline = time.monotonic() + 60
        # A request may be counted after it is answered.
        while not (COUNTED[0] in text and COUNTED[1] in text) and time.monotonic() < deadline:
            text = live.get("/metrics").text
    exposed = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    assert exposed == set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    for line in text.splitlines():
        assert line.startswith("#") or re.fullmatch(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [-+0-9.einfE]+', line), line
        name = re.match(r"(?:# \w+ )?([a-z_]+)", line)
        assert name and (name[1] in exposed or re.sub("_(bucket|sum|count)$", "", name[1]) in exposed), line
    documented = set(re.findall(r"`(serve_\w+)`", PAGE.read_text()))
    assert exposed | {f"serve_{name}" for name, *_ in activation._METRICS} == documented
    for line in (*COUNTED, f'serve_request_seconds_bucket{{{LABELS},le="+Inf"}} 1\n'):
        assert line in text


@pytest.mark.parametrize(
    ("source", "prefix"),
    [
        ("cube/agent/app.py", "cube_agent_"),
        ("cube/transfer/metrics.py", "cube_transfer_"),
        ("ps/coordinator/app.py", "elasticctr_coordinator_"),
    ],
)
def test_metrics_of_the_control_plane_are_those_documented(source: str, prefix: str) -> None:
    code = (ROOT / "src" / "elasticctr" / source).read_text()
    if prefix in ("cube_agent_", "cube_transfer_"):
        exported = set(re.findall(rf'"({prefix}\w+)"', code))
    else:
        exported = {prefix + name for name in re.findall(r'\("(\w+)", "(?:gauge|counter)"', code)}
    documented = {name.removesuffix("_total") for name in re.findall(rf"`({prefix}\w+)`", PAGE.read_text())}
    assert {name.removesuffix("_total") for name in exported} == documented
