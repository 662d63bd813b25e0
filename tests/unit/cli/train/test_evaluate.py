"""`elasticctr eval`: requested figures are in the output, in metrics.json and in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.known_run import make_known_run
from typer.testing import CliRunner

from elasticctr.cli.app import app


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_known_run(tmp_path_factory.mktemp("eval"))


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_everything_at_once_in_json_metrics_and_report(run: Path) -> None:
    options = ("--segments", "strong,noise", "--min-samples", 50, "--bootstrap", 60, "--seed", 3)
    ranked = ("--gauc-slot", "noise", "--top-k", 5)
    done = invoke("eval", run, *options, *ranked, "--against", run, "--save-as", "checked", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    confidence = found["confidence"]
    assert confidence["auc"]["lo"] < found["auc"] < confidence["auc"]["hi"]
    assert confidence["auc"]["value"] == pytest.approx(found["auc"], abs=found["bounds"]["auc"] + 1e-9)
    assert confidence["difference"]["auc"]["value"] == 0 and not confidence["difference"]["auc"]["is_clear"]
    assert found["segments"]["strong"]["tested"] == 5 and found["segments"]["noise"]["tested"] == 8
    assert 0 <= found["recall@5"] <= 1 and 0 < found["ndcg@5"] <= 1 and found["ranked_groups"] == 8
    assert 0.7 < found["pr_auc"] < 1 and found["rig"] > 0.1 and found["ece"] < 0.1
    kept = json.loads((run / "metrics.json").read_text())
    assert kept["checked"] == found and {"test", "train"} <= set(kept)
    report = (run / "report.html").read_text()
    assert "Worst segments" in report and "Confidence" in report and "bootstrap replicates" in report


def test_tables_for_people(run: Path) -> None:
    done = invoke(
        "eval", run / "checkpoints" / sorted(p.name for p in (run / "checkpoints").iterdir())[-1], "--bootstrap", 20
    )
    assert done.exit_code == 0, done.output
    assert "pr_auc" in done.stdout and "confidence (95 %, 20 replicates)" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--top-k", "3"), "--gauc-slot"),
        (("--segments", "strog"), "'strog' is not a sparse slot"),
        (("--bootstrap", "9", "--label", "buy"), "'buy' is not a label"),
    ],
)
def test_wrong_use_is_one_clear_line(run: Path, options: tuple[str, ...], words: str) -> None:
    done = invoke("eval", run, *options)
    assert done.exit_code == 10 and words in done.stderr
