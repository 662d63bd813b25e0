"""Crosses, buckets and a vocabulary with several processes: the rows are those of one process, and what only a
cross shows is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.e2e.conftest import Run, answer

SLOTS: list[dict[str, Any]] = [
    {"name": "user", "values": "string"},
    {"name": "ad", "values": "string"},
    {"kind": "dense", "name": "price"},
    {"kind": "bucket", "name": "size", "of": "price", "by": "log2"},
    {"kind": "cross", "name": "user_x_ad", "of": ["user", "ad"]},
    {"kind": "cross", "name": "ad_x_size", "of": ["ad", "size"]},
]


def write_log(path: Path, rows: int, seed: int) -> None:
    """Users and ads of one parity click: neither tells anything alone. Some users are there once."""
    random = np.random.default_rng(seed)
    users, ads, rare = random.integers(0, 20, rows), random.integers(0, 10, rows), random.random(rows) < 0.05
    price = random.integers(1, 200, rows)
    clicks = random.random(rows) < np.where((users + ads) % 2 == 0, 0.9, 0.1)
    names = [f"once{seed}-{i}" if rare[i] else f"u{users[i]}" for i in range(rows)]
    lines = [f"click:{int(clicks[i])} user:{names[i]} ad:a{ads[i]} price:{price[i]}\n" for i in range(rows)]
    path.write_text("".join(lines))


def write_job(folder: Path) -> Path:
    write_log(folder / "train.txt", 6000, 1)
    write_log(folder / "valid.txt", 1500, 2)
    (folder / "schema.yaml").write_text(yaml.safe_dump({"slots": SLOTS}))
    settings = {
        "run_dir": str(folder / "run"),
        "schema": str(folder / "schema.yaml"),
        "data": {"train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")},
        "model": {"name": "lr"},
        "sparse": {
            "vocabulary": {"path": str(folder / "vocabulary")},
            "optimizer": {"name": "adam", "learning_rate": 0.1},
        },
        "train": {"batch_size": 100, "epochs": 2, "threads": 1, "seed": 3},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("engine", "strategy"), [("local", "sync"), ("local", "async"), ("torchrun", "collective")])
def test_many_processes_have_the_rows_of_one(
    elasticctr: Run, invoke: Run, tmp_path: Path, engine: str, strategy: str
) -> None:
    job = write_job(tmp_path)
    words = [tmp_path / "train.txt", tmp_path / "vocabulary", "--schema", tmp_path / "schema.yaml", "--min-count", "3"]
    counted = answer(invoke("data", "vocabulary", *words, "--json"))["tables"]["main"]
    assert 0 < counted["feasigns"] < counted["distinct"]
    one = answer(invoke("train", job, "--run-dir", tmp_path / "one", "--json"))
    many = ["--on", engine, "--strategy", strategy, "--trainers", "2", "--set", "cluster.chunk_mib=0.05"]
    many += ["--pservers", "2"] if engine == "local" else []
    result = answer(elasticctr("train", job, *many, "--json", timeout_s=400))
    assert result["samples"] == one["samples"] == 12_000
    assert one["metrics"]["valid"]["auc"] > 0.8 and result["metrics"]["valid"]["auc"] > 0.8
    # What is published is what was learned: the vocabulary, and a row per slot for everything else.
    rows = []
    for run in (tmp_path / "one", tmp_path / "run"):
        published = answer(invoke("publish", run, "--repo", tmp_path / f"repo-{run.name}", "--model", "m", "--json"))
        rows.append(published["rows"])
    assert rows[0] == rows[1] and counted["feasigns"] < rows[0] <= counted["feasigns"] + 5
