"""`elasticctr cube get` and `cube bench` against a scripted server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.cube.fake_server import FakeServer, expected_found, expected_rows
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import DataError


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def run(*args: str, status: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["cube", *args, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_get(server: FakeServer, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("9\n\n18446744073709551615\n")
    answer = run("get", "embedding", "17", "0x14", "--keys", str(keys), "--endpoint", server.address, "--model", "ctr")
    feasigns = np.array([17, 20, 9, 2**64 - 1], np.uint64)
    assert [row["feasign"] for row in answer["rows"]] == feasigns.tolist()
    assert [row["found"] for row in answer["rows"]] == expected_found(feasigns).tolist()
    np.testing.assert_array_equal([row["row"] for row in answer["rows"]], expected_rows(1, feasigns))
    assert answer["version"] == 1
    shown = CliRunner().invoke(app, ["cube", "get", "ctr/embedding", "17", "--endpoint", server.address])
    assert "17\tyes\t1 17 -17 0.5" in shown.stdout


def test_settings_files(server: FakeServer, tmp_path: Path) -> None:
    conf = tmp_path / "cube.yaml"
    conf.write_text(f"model: ctr\nshards: [['{server.address}']]\n")
    assert run("get", "embedding", "3", "--config", str(conf))["rows"][0]["found"]


@pytest.mark.parametrize(
    ("args", "status", "code"),
    [
        (["get", "ctr/embedding", "--endpoint", "127.0.0.1:1"], 10, "ConfigError"),
        (["get", "ctr/embedding", "1"], 10, "ConfigError"),
        (["get", "ctr/embedding", "x", "--endpoint", "127.0.0.1:1"], 11, "DataError"),
        (["get", "ctr/embedding", "1", "--endpoint", "127.0.0.1:1"], 17, "Unavailable"),
        (["get", "ctr/embedding", "1", "--endpoint", "nowhere"], 10, "ConfigError"),
        (["get", "ctr/embedding", "1", "--config", "/none/cube.yaml"], 12, "NotFound"),
        (["bench", "ctr/embedding", "--endpoint", "127.0.0.1:1"], 10, "ConfigError"),
        (["bench", "ctr/embedding", "--endpoint", "127.0.0.1:1", "--random", "9"], 17, "Unavailable"),
    ],
)
def test_mistakes_have_their_status(args: list[str], status: int, code: str) -> None:
    assert run(*args, status=status)["error"]["code"] == code


def test_a_bad_line_of_keys_is_named(tmp_path: Path) -> None:
    from elasticctr.cube.keys import read_feasigns

    (tmp_path / "keys").write_text("1\nabc\n")
    with pytest.raises(DataError, match="keys:2"):
        read_feasigns(tmp_path / "keys")


@pytest.mark.parametrize("pace", [[], ["--rate", "200"]], ids=["closed loop", "open loop"])
def test_bench(server: FakeServer, pace: list[str]) -> None:
    args = [
        "bench",
        "ctr/embedding",
        "--endpoint",
        server.address,
        "--random",
        "1000",
        "--zipf",
        "1.2",
        "--batch",
        "20",
    ]
    result = run(*args, "--concurrency", "2", "--seconds", "0.5", *pace)
    assert result["calls"] > 10 and result["keys"] == 20 * result["calls"]
    assert result["errors"] == {} and result["versions"] == {"1": result["calls"]}
    assert 0 < result["p50_us"] <= result["p90_us"] <= result["p99_us"] <= result["p99_9_us"] <= result["max_us"]
    if pace:
        assert 80 <= result["calls"] <= 101


def test_bench_counts_errors_by_kind(server: FakeServer) -> None:
    server.behave = "wrong_shard"
    shown = CliRunner().invoke(app, ["cube", "get", "ctr/embedding", "1", "--endpoint", server.address])
    assert shown.exit_code == 15
    server.behave = "ok"
    args = [
        "bench",
        "ctr/embedding",
        "--endpoint",
        server.address,
        "--random",
        "10",
        "--seconds",
        "0.2",
        "--timeout",
        "0.5",
    ]
    assert run(*args)["client"]["errors"] == {}
