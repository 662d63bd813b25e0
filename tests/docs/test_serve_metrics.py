"""Every metric of the prediction server is in docs/serve.md, and nothing else is."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.unit.serve.live import live_server

from elasticctr.serve.activation import fleet as activation
from elasticctr.serve.feedback.settings import RequestLogSettings

LABELS = 'model="ctr",variant="live",version="7"'
COUNTED = (
    f'serve_requests_total{{{LABELS},code="OK"}} 1\n',
    'serve_protocol_requests_total{protocol="json",code="DataError"} 1\n',
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


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
    table = PAGE.read_text().partition("## Metrics")[2]
    documented = set(re.findall(r"`(serve_\w+)`", table))
    assert exposed | {f"serve_{name}" for name, *_ in activation._METRICS} == documented
    for line in (*COUNTED, f'serve_request_seconds_bucket{{{LABELS},le="+Inf"}} 1\n'):
        assert line in text
