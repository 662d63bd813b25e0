"""Every metric of the prediction server is in docs/serve.md, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.serve.live import live_server

from elasticctr.serve import activation
from elasticctr.serve.feedback.settings import RequestLogSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


def test_metrics_are_those_documented(tmp_path: Path) -> None:
    request_log = RequestLogSettings(directory=str(tmp_path / "requests")).native()
    with live_server(tmp_path, access_log=tmp_path / "access.log", request_log=request_log) as live:
        assert live.post({"samples": [{}]}).status_code == 200
        assert live.post({"samples": [{"nobody": 1}]}).status_code == 400
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
    labels = 'model="ctr",variant="live",version="7"'
    assert f'serve_requests_total{{{labels},code="OK"}} 1\n' in text
    assert 'serve_protocol_requests_total{protocol="json",code="DataError"} 1\n' in text
    assert f'serve_request_seconds_bucket{{{labels},le="+Inf"}} 1\n' in text
