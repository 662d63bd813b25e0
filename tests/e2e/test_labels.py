"""Two labels from the log to the answer: every protocol serves every head's offline score, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from tests.e2e.conftest import Run, answer
from tests.e2e.parity_protocols import Servers
from tests.e2e.parity_server import serve

LABELS = ["click", "buy"]
SERVED = 50


def write_log(path: Path, rows: int, seed: int) -> None:
    """Buys happen after clicks; who clicks and who buys depends on other things."""
    random = np.random.default_rng(seed)
    users, ads, x = random.integers(0, 30, rows), random.integers(0, 20, rows), random.normal(size=rows)
    click = random.random(rows) < 1 / (1 + np.exp(-(users % 5 - 2.0) - 0.5 * x))
    buy = click & (random.random(rows) < 1 / (1 + np.exp(-(ads % 4 - 1.0))))
    lines = [
        f"click:{int(click[i])} buy:{int(buy[i])} user:{users[i] + 1} ad:{ads[i] + 101} x:{x[i]:.4f}\n"
        for i in range(rows)
    ]
    path.write_text("".join(lines))


def write_job(folder: Path, model: dict[str, Any], **more: Any) -> Path:
    write_log(folder / "train.txt", 6000, 1)
    write_log(folder / "valid.txt", 1500, 2)
    slots = [{"name": "user"}, {"name": "ad"}, {"kind": "dense", "name": "x"}]
    settings = {
        "run_dir": str(folder / "run"),
        "schema": {"slots": slots, "label": LABELS},
        "data": {"train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")},
        "model": {"dim": 4, "hidden": [16, 8], **model},
        "dense": {"learning_rate": 0.01},
        "sparse": {"optimizer": {"learning_rate": 0.05}},
        "train": {
            "batch_size": 128,
            "epochs": 3,
            "threads": 1,
            "log_every": 10,
            "early_stopping": {"metric": "auc", "label": "buy", "patience": 2},
        },
        **more,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def check_metrics(metrics: dict[str, Any]) -> None:
    assert list(metrics["labels"]) == LABELS
    assert metrics["labels"]["click"]["auc"] > 0.7
    assert metrics["labels"]["buy"]["auc"] > 0.7
    assert metrics["labels"]["click"]["ctr"] > metrics["labels"]["buy"]["ctr"] > 0
    assert metrics["auc"] == metrics["labels"]["click"]["auc"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("model", "loss"),
    [
        ({"name": "mmoe", "head_hidden": [4], "experts": 2}, {"task_weights": "uncertainty"}),
        ({"name": "esmm"}, {"pairwise": 0.1, "group": "user"}),
    ],
    ids=["mmoe", "esmm"],
)
def test_heads_offline_are_heads_served(
    invoke: Run, tmp_path: Path, model: dict[str, Any], loss: dict[str, Any]
) -> None:
    result = answer(invoke("train", write_job(tmp_path, model, loss=loss), "--json"))
    check_metrics(result["metrics"]["valid"])
    run = Path(result["run_dir"])
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    evals = [event for event in events if event["event"] == "eval"]
    assert all(list(event["labels"]) == LABELS for event in evals)
    assert all(set(event["labels"]["buy"]) == {"auc"} for event in events if event["event"] == "train")
    best = max(evals, key=lambda event: event["labels"]["buy"]["auc"])
    assert result["metrics"]["valid"]["labels"]["buy"]["auc"] == best["labels"]["buy"]["auc"]
    report = (run / "report.html").read_text()
    assert all(f"valid {label}" in report for label in LABELS)

    scores = tmp_path / "scores.parquet"
    assert answer(invoke("predict", run, "--out", scores, "--json"))["rows"] == 1500
    table = pq.read_table(scores)
    assert table.column_names == ["score_click", "score_buy", "label_click", "label_buy"]
    for label in LABELS:
        auc = roc_auc_score(table[f"label_{label}"], table[f"score_{label}"])
        assert auc == pytest.approx(best["labels"][label]["auc"], abs=1e-5)

    repo = str(tmp_path / "repo")
    answer(invoke("publish", run, "--repo", repo, "--model", "two", "--json"))
    answer(invoke("versions", "verify", f"{repo}/two", "--json"))
    published = json.loads((tmp_path / "repo" / "two" / "1" / "metrics.json").read_text())
    check_metrics(published["valid"])
    offline = np.stack([table[f"score_{label}"].to_numpy() for label in LABELS], axis=1)[:SERVED]
    lines = (tmp_path / "valid.txt").read_text().splitlines()[:SERVED]
    with serve(tmp_path, repo, ["two"]) as servers:
        for protocol in (by_json, by_kserve, by_paddle):
            np.testing.assert_allclose(protocol(servers, lines), offline, atol=1e-6, err_msg=protocol.__name__)


def by_json(servers: Servers, lines: list[str]) -> NDArray[np.float64]:
    got = servers.post("/v1/models/two:predict", {"lines": lines})
    assert got["labels"] == LABELS
    answered = servers.client.predict(lines=lines, model="two")
    assert answered.labels == tuple(LABELS)
    np.testing.assert_array_equal(answered.scores, np.array(got["scores"], dtype=np.float32))
    return np.array(got["scores"])


def by_kserve(servers: Servers, lines: list[str]) -> NDArray[np.float64]:
    tensor = {"name": "lines", "datatype": "BYTES", "shape": [len(lines)], "data": lines}
    got = servers.post("/v2/models/two/infer", {"inputs": [tensor]})
    assert got["parameters"]["labels"] == ",".join(LABELS)
    (output,) = got["outputs"]
    assert output["shape"] == [len(lines), 2]
    return np.array(output["data"]).reshape(len(lines), 2)


def by_paddle(servers: Servers, lines: list[str]) -> NDArray[np.float64]:
    cells = [dict(part.split(":") for part in line.split()) for line in lines]
    n = len(lines)
    tensors: list[dict[str, Any]] = [
        {"name": slot, "int64_data": [int(cell[slot]) for cell in cells], "shape": [n, 1], "lod": list(range(n + 1))}
        for slot in ("user", "ad")
    ]
    tensors.append({"name": "dense_input", "float_data": [float(cell["x"]) for cell in cells], "shape": [n, 1]})
    got = servers.post("/two/GeneralModelService/inference", {"tensor": tensors, "fetch_var_names": LABELS})
    (output,) = got["outputs"]
    assert [tensor.get("alias_name") or tensor["name"] for tensor in output["tensor"]] == LABELS
    return np.stack([tensor["float_data"] for tensor in output["tensor"]], axis=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pservers_train_every_head_and_what_the_loss_learns(elasticctr: Run, tmp_path: Path) -> None:
    model = {"name": "mmoe", "head_hidden": [4], "experts": 2}
    job = write_job(tmp_path, model, loss={"task_weights": "uncertainty"})
    many = ("--on", "local", "--pservers", "2", "--trainers", "2", "--set", "cluster.chunk_mib=1")
    result = answer(elasticctr("train", job, *many, "--json", timeout_s=400))
    assert result["samples"] in (6000, 12000, 18000)
    check_metrics(result["metrics"]["valid"])
    evaluated = answer(elasticctr("eval", result["run_dir"], "--json"))
    for label in LABELS:
        expected = result["metrics"]["valid"]["labels"][label]["auc"]
        assert evaluated["labels"][label]["auc"] == pytest.approx(expected, abs=1e-6)
