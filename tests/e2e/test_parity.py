"""Served scores equal trained ones: every format through every protocol gives the trainer's own scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.data.formats.writers import save_schema
from elasticctr.data.schema import Format
from elasticctr.errors import DataError, NotFound
from elasticctr.serve.client import AsyncPredictClient
from tests.e2e.parity_cases import FORMATS, Case, make_case
from tests.e2e.parity_protocols import PROTOCOLS, Scores, Servers, difference
from tests.e2e.parity_server import serve

TOLERANCE = 1e-6
ROWS = 300
PAIRS = [(format, protocol) for protocol, formats in PROTOCOLS.items() for format in formats]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[Format, Case], Servers]]:
    folder = tmp_path_factory.mktemp("parity")
    repo = str(folder / "repo")
    cases = {format: make_case(folder, repo, format, ROWS) for format in FORMATS}
    with serve(folder, repo, [str(format) for format in FORMATS]) as servers:
        yield cases, servers


@pytest.mark.parametrize(("format", "protocol"), PAIRS, ids=[f"{f}-{p.__name__}" for f, p in PAIRS])
def test_served_is_trained(
    served: tuple[dict[Format, Case], Servers], format: Format, protocol: Callable[[Case, Servers], Scores]
) -> None:
    cases, servers = served
    case = cases[format]
    assert case.scores.std() > 0.05  # equal scores would prove nothing
    assert difference(case, servers, protocol)[0] <= TOLERANCE


@pytest.mark.parametrize("format", [Format.CRITEO, Format.CSV, Format.PARQUET], ids=str)
def test_call_writes_the_trainers_scores(
    served: tuple[dict[Format, Case], Servers], format: Format, tmp_path: Path
) -> None:
    cases, servers = served
    case = cases[format]
    save_schema(case.schema, tmp_path / "schema.yaml")
    out = tmp_path / "scores.txt"
    arguments = ["call", str(case.path), "--endpoint", servers.url, "--model", case.name, "--format", case.name]
    arguments += ["--batch", "37", "--timeout", "60", "--schema", str(tmp_path / "schema.yaml"), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["requests"], report["samples"], report["errors"]) == (9, ROWS, {})
    assert report["versions"] == {f"{case.name} 1": 9}
    assert report["variants"] == {"live": 9}
    assert 0 < report["coverage"]["found"] < report["coverage"]["asked"]
    assert np.abs(np.loadtxt(out, dtype=np.float32) - case.scores).max() <= TOLERANCE


def test_client_and_server_agree_on_errors(served: tuple[dict[Format, Case], Servers]) -> None:
    cases, servers = served
    client = servers.client
    with pytest.raises(NotFound, match="nosuch"):
        client.predict([{}], model="nosuch")
    with pytest.raises(NotFound, match="99"):
        client.predict([{}], model="criteo", version=99)
    with pytest.raises(DataError, match="nonsense"):
        client.predict([{"nonsense": 1}], model="criteo")
    with pytest.raises(DataError, match="line 2"):
        client.predict(lines=[cases[Format.CRITEO].lines()[0], "1\tx"], format="criteo", model="criteo")
    got = client.predict([{"nonsense": 1}], model="criteo", ignore_unknown=True, id="mine", version=1)
    # Asked for are the buckets of two missing numbers.
    assert (got.id, got.version, got.variant, got.coverage.asked, len(got.scores)) == ("mine", 1, "live", 2, 1)


def test_async_client(served: tuple[dict[Format, Case], Servers]) -> None:
    cases, servers = served
    case = cases[Format.SLOT]
    lines = case.lines()

    async def score() -> list[Scores]:
        async with AsyncPredictClient(servers.url, model="slot", timeout_s=60, connect_s=60) as client:
            calls = [client.predict(lines=lines[i : i + 10], format="slot") for i in range(0, len(lines), 10)]
            return [prediction.scores for prediction in await asyncio.gather(*calls)]

    assert np.abs(np.concatenate(asyncio.run(score())) - case.scores).max() <= TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_served_is_trained_over_100_000_samples(tmp_path: Path) -> None:
    for format in FORMATS:
        case = make_case(tmp_path, str(tmp_path / "repo"), format, 100_000)
        with serve(tmp_path, str(tmp_path / "repo"), [case.name]) as servers:
            for protocol, formats in PROTOCOLS.items():
                if format in formats:
                    assert difference(case, servers, protocol)[0] <= TOLERANCE, (format, protocol.__name__)
