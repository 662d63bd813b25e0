"""Shared by stories about one server: checks its answers against the truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticctr.cube.lookup import Lookup
from tests.cluster.truth import MODEL, TABLE, Places, Truth
from tests.process.cube.serving import ServerProcess, Wire


def check_rows(wire: Wire, truth: Truth, places: Places) -> int:
    """Every row right for the version that answered, which is returned."""
    answer = wire.lookup(truth.feasigns[places], f"{MODEL}/{TABLE}")
    assert answer.status == 0, answer
    verdict = truth.judge(places, Lookup(*answer.rows(), answer.version))
    assert verdict.is_right, verdict
    return answer.version


def check_version(server: ServerProcess, truth: Truth, version: int, places: Places | None = None) -> None:
    wire = server.wire()
    assert check_rows(wire, truth, np.arange(len(truth.feasigns)) if places is None else places) == version
    wire.close()


def check_not_loadable(server: ServerProcess, version: int) -> str:
    """The server refuses it at once or after a look, and cannot be made to answer from it. What it says."""
    status, answer = server.http("POST", "/v1/load", {"model": MODEL, "version": version})
    state: dict[str, Any] = {"state": "failed", **answer} if status >= 400 else server.load(version)
    assert state["state"] == "failed" and state["error"], state
    status, _ = server.http("POST", "/v1/activate", {"model": MODEL, "version": version})
    assert status in (404, 412, 500), status
    return str(state["error"])
