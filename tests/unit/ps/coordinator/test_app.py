"""The coordinator's routes: bodies are small but where metrics are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.ps.conftest import find_url, make_job


@pytest.mark.promise(
    "a client sends the coordinator bodies of many MiB", "413 on every route except those of metrics, before parsing"
)
def test_bodies_are_small_but_of_metrics(tmp_path: Path, world: Any) -> None:
    job = make_job(tmp_path)
    w = world(job)
    w.start()
    w.add_pserver(0)
    w.add_pserver(1)
    url = find_url(job.run_dir)
    body = b'{"id": 1, "padding": "' + b"x" * (2 << 20) + b'"}'
    headers = {"content-type": "application/json"}
    with httpx.Client(timeout=60, trust_env=False) as client:
        for route in ("join", "beat", "lease", "give_back", "leave", "report"):
            assert client.post(f"{url}/v1/{route}", content=body, headers=headers).status_code == 413, route
        for route in ("progress", "done"):
            assert client.post(f"{url}/v1/{route}", content=body, headers=headers).status_code != 413, route
    w.add_trainer("a")
    w.add_trainer("b")
    assert w.result() is True
