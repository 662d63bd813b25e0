"""The loop: what was served and clicked is what the next model learns from."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from elasticctr import _native
from tests.e2e.conftest import Run, answer

HOUR = 1_794_747_600.0  # 20261115/13, UTC
ITEMS = ("good", "bad")


def _feasign(slot: str, text: str) -> int:
    return _native.feature_hash(slot, text.encode(), 0)


def _write_log(directory: Path, requests: int) -> None:
    """Requests of two candidates each, as a server logs them: values hashed."""
    log = _native.RequestLog(str(directory))
    for i in range(requests):
        user = [(0, [_feasign("user", f"u{i % 5}")])]
        rows = [user, *([(1, [_feasign("item", item)])] for item in ITEMS)]
        log.add(HOUR + i, f"r{i}", "ctr", 1, "live", "json", b"{}", ["user", "item"], [], rows, [], [[0.5]] * 2)
    log.stop()


def _job(place: Path, path: str) -> Path:
    settings = {
        "run_dir": str(place / "run"),
        "schema": {"slots": [{"name": "user", "values": "string"}, {"name": "item", "values": "string"}]},
        "data": {
            "train": {
                "path": path,
                "joined": "feasign",
                "start": "20261115/13",
                "end": "20261115/13",
                "donefile": "donefile",
                "on_bad": "fail",
            }
        },
        "model": {"name": "lr"},
        "sparse": {"optimizer": {"name": "adam", "learning_rate": 0.1}},
        "train": {"batch_size": 50, "epochs": 3, "threads": 1},
    }
    path_ = place / "job.yaml"
    path_.write_text(yaml.safe_dump(settings))
    return path_


def test_a_joined_log_trains_a_model_that_reads_raw_logs(invoke: Run, tmp_path: Path) -> None:
    _write_log(tmp_path / "log", 300)
    clicks = [{"id": f"r{i}", "index": 0, "time": HOUR + i + 60} for i in range(300) if i % 10]
    (tmp_path / "clicks.jsonl").write_text("".join(json.dumps(click) + "\n" for click in clicks))
    joined = answer(
        invoke(
            "feedback", "join", "--requests", tmp_path / "log", "--clicks", tmp_path / "clicks.jsonl",
            "--out", tmp_path / "samples", "--window", "30m", "--json",
        )
    )  # fmt: skip
    assert (joined["samples"], joined["clicked"], joined["format"]) == (600, 270, "feasign")

    trained = answer(invoke("train", _job(tmp_path, str(tmp_path / "samples/{date}/{hour}")), "--json"))
    assert trained["samples"] == 3 * 600

    # The run's schema hashes strings, as the requests' do: a raw log meets the rows learned from feasigns.
    (tmp_path / "raw.txt").write_text("click:1 user:u1 item:good\nclick:0 user:u1 item:bad\n")
    scored = answer(
        invoke("predict", tmp_path / "run", "--data", tmp_path / "raw.txt", "--out", tmp_path / "scores.txt", "--json")
    )
    good, bad = map(float, (tmp_path / "scores.txt").read_text().split())
    assert scored["rows"] == 2
    assert good > 0.7
    assert bad < 0.3
