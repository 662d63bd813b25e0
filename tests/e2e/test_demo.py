"""The demo, smaller: from a click log to predictions over every protocol while a delta arrives."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elasticctr", "demo", "--out", str(tmp_path / "demo"), "--rows", "40000"]
    command += ["--chaos", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert 0.5 < answer["models"]["deepfm"]["auc"] <= answer["models"]["attainable"]["auc"] + 0.02
    many = answer["many"]
    assert many["samples"] == many["expected"] and many["restarts"] >= len(many["killed"])
    assert "trainer-1" in many["killed"]
    serving = answer["serving"]
    assert (serving["errors"], serving["mixed"]) == (0, 0)
    assert serving["requests"] > 10
    assert serving["delta_rows"] > 0
    predicting = answer["predicting"]
    assert predicting["failed"] == 0 and predicting["requests"] > 10
    assert {"JSON", "KServe HTTP", "bRPC"} <= set(predicting["protocols"])
    assert predicting["protocol_spread"] <= 1e-6
    assert predicting["offline_difference"] <= 1e-6
    assert len(predicting["versions"]) == 2, "a delta arrived while requests ran"
    # Nothing is left running.
    for line in (tmp_path / "demo" / "cube" / "transfer.yaml").read_text().splitlines():
        if "agent:" in line:
            port = int(line.rpartition(":")[2])
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
