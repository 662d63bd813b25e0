"""`elasticctr call` against a server that misbehaves on demand; tests/e2e has the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serve.client.fake_server import Behaviour, FakeServer
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import DataError, Unavailable


def run(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["call", *arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"{i % 2}\t{i}\n" for i in range(250)))
    return path


def test_file(log: Path, tmp_path: Path) -> None:
    with FakeServer(version=7) as server:
        got = run(str(log), "--endpoint", server.url, "--model", "ctr", "--format", "criteo", "--out",
                  str(tmp_path / "scores.txt"), "--timeout", "60")  # fmt: skip
    assert (got["requests"], got["samples"], got["errors"], got["first_error"]) == (3, 250, {}, None)
    assert got["versions"] == {"ctr 7": 3}
    assert got["variants"] == {"live": 3}
    assert got["coverage"] == {"asked": 78, "found": 75, "degraded": 0}
    assert 0 < got["p50_ms"] <= got["p90_ms"] <= got["p99_ms"] <= got["p99_9_ms"] <= got["max_ms"]
    assert sorted(len(r["lines"]) for r in server.requests) == [50, 100, 100]
    lines = (tmp_path / "scores.txt").read_text().splitlines()
    assert len(lines) == 250
    assert [float(x) for x in lines[100:102]] == [pytest.approx(0.01), pytest.approx(0.02)]


def test_rate_repeat_and_weights(log: Path) -> None:
    with FakeServer() as one, FakeServer() as two:
        got = run(str(log), "--endpoint", f"{one.url} 2", "--endpoint", two.url, "--model", "ctr", "--repeat", "4",
                  "--rate", "40", "--timeout", "60")  # fmt: skip
    assert got["requests"] == 12
    assert got["seconds"] >= 11 / 40
    assert (len(one.requests), len(two.requests)) == (8, 4)


def test_failed_requests_have_no_scores_and_give_the_status(log: Path, tmp_path: Path) -> None:
    bad: Behaviour = ("status", (400, {"error": {"code": "DataError", "message": "line 3: no"}}, {}))
    with FakeServer("answer", bad) as server:
        got = run(str(log), "--endpoint", server.url, "--model", "ctr", "--concurrency", "1", "--out",
                  str(tmp_path / "scores.txt"), "--timeout", "60", status=DataError.exit_status)  # fmt: skip
    assert got["errors"] == {"DataError": 1}
    assert "line 3: no" in got["first_error"]
    lines = (tmp_path / "scores.txt").read_text().splitlines()
    assert [line == "nan" for line in lines] == [False] * 100 + [True] * 100 + [False] * 50


def test_sample() -> None:
    with FakeServer() as server:
        got = run("--sample", '{"C2": "a"}', "--sample", '{"C2": "b"}', "--user", '{"C1": 1}', "--endpoint", server.url,
                  "--model", "ctr", "--timeout", "60")  # fmt: skip
    assert got["scores"] == [pytest.approx(0.01), pytest.approx(0.02)]
    assert got["version"] == 1
    del server.requests[0]["timeout_ms"]
    assert server.requests == [{"user": {"C1": 1}, "candidates": [{"C2": "a"}, {"C2": "b"}]}]


def test_predictors(log: Path, tmp_path: Path) -> None:
    """Paddle Serving's client configuration: two variants by weight, each its own cluster."""
    with FakeServer(version=1) as one, FakeServer(version=2) as two:
        clusters = [server.url.removeprefix("http://") for server in (one, two)]
        variants = "".join(
            f'variants {{ tag: "v{i}" naming_conf {{ cluster: "list://{cluster}" }} }}\n'
            for i, cluster in enumerate(clusters)
        )
        (tmp_path / "predictors.prototxt").write_text(
            'predictors { name: "ctr" '
            'service_name: "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService" '
            'endpoint_router: "WeightedRandomRender" '
            'weighted_random_render_conf { variant_weight_list: "50|50" }\n' + variants + "}\n"
            'default_variant_conf { tag: "default" '
            "connection_conf { connect_timeout_ms: 20000 rpc_timeout_ms: 20000 } }"
        )
        got = run(str(log), "--predictors", str(tmp_path / "predictors.prototxt"), "--model", "ctr", "--batch", "2")
        sticky = run(str(log), "--predictors", str(tmp_path / "predictors.prototxt"), "--model", "ctr", "--batch", "9",
                     "--sticky", "u7")  # fmt: skip
    assert got["requests"] == 125
    assert set(got["variants"]) == {"v0/live", "v1/live"}
    assert 30 < got["variants"]["v0/live"] < 95
    assert len(sticky["variants"]) == 1


def test_for_people(log: Path) -> None:
    with FakeServer() as server:
        arguments = ["call", str(log), "--endpoint", server.url, "--model", "ctr", "--timeout", "60"]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for word in ("scores", "p99.9", "ctr 1 (3)", "live (3)", "75 of 78 rows", "errors    none"):
        assert word in result.stdout


def test_nobody_there(log: Path) -> None:
    with FakeServer() as server:
        pass
    got = run(str(log), "--endpoint", server.url, "--model", "ctr", status=Unavailable.exit_status)
    assert got["errors"] == {"Unavailable": 3}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--endpoint", "h:1", "--model", "m"], 10),
        (["x", "--sample", "{}", "--endpoint", "h:1"], 10),
        (["--sample", "{}"], 10),
        (["--sample", "[", "--endpoint", "h:1", "--model", "m"], 11),
        (["--sample", "1", "--endpoint", "h:1", "--model", "m"], 11),
        (["/nowhere/x", "--endpoint", "h:1", "--model", "m"], 12),
        (["x", "--endpoint", "ftp://h", "--model", "m"], 10),
        (["x", "--endpoint", "h:1 heavy", "--model", "m"], 10),
        (["x", "--user", "{}", "--endpoint", "h:1"], 10),
    ],
)
def test_wrong_use(arguments: list[str], status: int) -> None:
    assert "message" in run(*arguments, status=status)["error"]
