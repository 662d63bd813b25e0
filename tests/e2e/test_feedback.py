"""The feedback loop: the next model learns from what was served and clicked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from elasticctr import _native
from elasticctr.serve.feedback.log import list_logs, read_lines
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


def _job(place: Path, run: str, train: dict[str, Any]) -> Path:
    settings = {
        "run_dir": str(place / run),
        "schema": {"slots": [{"name": "user", "values": "string"}, {"name": "item", "values": "string"}]},
        "data": {"train": {"on_bad": "fail", **train}},
        "model": {"name": "lr"},
        "sparse": {"optimizer": {"name": "adam", "learning_rate": 0.1}},
        "train": {"batch_size": 50, "epochs": 3, "threads": 1},
    }
    path = place / f"{run}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def _hours(path: Path, first: str, last: str) -> dict[str, Any]:
    tree = str(path / "{date}/{hour}")
    return {"path": tree, "joined": "feasign", "start": first, "end": last, "donefile": "donefile"}


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

    job = _job(tmp_path, "run", _hours(tmp_path / "samples", "20261115/13", "20261115/13"))
    trained = answer(invoke("train", job, "--json"))
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


@contextmanager
def _serving(place: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "elasticctr", "serve", "--repo", str(place / "repo"), "--model", "ctr"]
    options = ["--port", "0", "--grpc-port", "-1", "--poll", "0.1", "--index-dir", str(place / "index"), "--json"]
    process = subprocess.Popen(
        [*command, *options, "--request-log", str(place / "log")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(client: httpx.Client, version: int) -> None:
    deadline = time.monotonic() + 60
    while client.get("/v1/models/ctr").json().get("live") != version:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _ask(client: httpx.Client, request_id: str, items: tuple[str, ...]) -> dict[str, Any]:
    body = {"id": request_id, "user": {"user": "u1"}, "candidates": [{"item": item} for item in items]}
    found: dict[str, Any] = client.post("/v1/models/ctr:predict", json=body).raise_for_status().json()
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_whole_loop(invoke: Run, tmp_path: Path) -> None:
    """Served, logged, clicked, joined, learned, published, activated: a new item gets a high score."""
    raw = "".join(f"click:{i % 2} user:u{i % 5} item:{'good' if i % 2 else 'bad'}\n" for i in range(400))
    (tmp_path / "raw.txt").write_text(raw)
    answer(invoke("train", _job(tmp_path, "first", {"path": str(tmp_path / "raw.txt")}), "--json"))
    answer(invoke("publish", tmp_path / "first", "--repo", tmp_path / "repo", "--model", "ctr", "--json"))
    items = ("good", "bad", "unheard-of")
    with _serving(tmp_path) as client:
        _wait_for(client, 1)
        answers = [_ask(client, f"r{i}", items) for i in range(200)]
        assert {found["version"] for found in answers} == {1}
        good, bad, new = answers[0]["scores"]
        assert bad < new < good
        clicks = [{"id": f"r{i}", "index": 2, "time": time.time()} for i in range(200)]
        (tmp_path / "clicks.jsonl").write_text("".join(json.dumps(click) + "\n" for click in clicks))
        deadline = time.monotonic() + 60
        while sum(len(list(read_lines(path))) for path in list_logs([tmp_path / "log"])) < 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        log, out = tmp_path / "log", tmp_path / "samples"
        command = ["--requests", log, "--clicks", tmp_path / "clicks.jsonl", "--out", out, "--state", tmp_path / "join"]
        now = time.time()
        early = answer(invoke("feedback", "join", *command, "--json"))
        assert (early["requests"], early["samples"]) == (200, 0)
        joined = answer(invoke("feedback", "join", *command, "--now", str(now + 7200), "--json"))
        assert (joined["samples"], joined["clicked"], joined["total"]["requests"]) == (600, 200, 200)
        replayed = answer(invoke("feedback", "replay", log, "--repo", tmp_path / "repo", "--json"))
        assert replayed["same"]
        assert (replayed["requests"], replayed["from_request"]) == (200, 200)
        assert replayed["worst"] <= 1e-6

        hours = sorted("/".join(path.parts[-3:-1]) for path in out.glob("*/*/donefile"))
        assert hours
        answer(invoke("train", _job(tmp_path, "second", _hours(out, hours[0], hours[-1])), "--json"))
        answer(invoke("publish", tmp_path / "second", "--repo", tmp_path / "repo", "--model", "ctr", "--json"))
        _wait_for(client, 2)
        found = _ask(client, "again", items)
        assert found["version"] == 2
        assert found["scores"][2] > 0.7 > 0.5 > max(found["scores"][:2])
        replayed = answer(invoke("feedback", "replay", log, "--repo", tmp_path / "repo", "--json"))
        assert replayed["same"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_late_clicks_are_learned_from_a_log_that_did_not_wait(invoke: Run, tmp_path: Path) -> None:
    """Negatives at once, clicks hours later: both delayed-feedback losses find the true rates, plain ones do not."""
    requests, rates = 1500, {"good": 0.6, "bad": 0.2}
    _write_log(tmp_path / "log", requests)
    clicks = [
        {"id": f"r{i}", "index": index, "time": HOUR + i + 3 * 3600}
        for i in range(requests)
        for index, item in enumerate(ITEMS)
        if (i * 7 + index) % 100 < 100 * rates[item]
    ]
    assert len(clicks) == requests * sum(rates.values())
    (tmp_path / "clicks.jsonl").write_text("".join(json.dumps(click) + "\n" for click in clicks))
    log = ("--requests", tmp_path / "log", "--clicks", tmp_path / "clicks.jsonl", "--json")
    at_once = ("--out", tmp_path / "shown", "--write", "negatives", "--window", "1s")
    shown = answer(invoke("feedback", "join", *log, *at_once))
    assert (shown["samples"], shown["clicked"], shown["late_clicks"]) == (2 * requests, 0, len(clicks))
    later = ("--out", tmp_path / "clicked", "--write", "clicks", "--window", "1d")
    clicked = answer(invoke("feedback", "join", *log, *later))
    assert (clicked["samples"], clicked["clicked"]) == (len(clicks), len(clicks))

    (tmp_path / "raw.txt").write_text(
        "".join(f"click:0 user:u{i % 5} item:{item}\n" for item in ITEMS for i in range(5))
    )
    seen = {item: rate / (1 + rate) for item, rate in rates.items()}
    for delayed, expected in (("none", seen), ("fnw", rates), ("fnc", rates)):
        paths = [str(tmp_path / name / "{date}/{hour}") for name in ("shown", "clicked")]
        train = {**_hours(tmp_path, "20261115/13", "20261115/13"), "path": paths, "shuffle_rows": 10_000}
        path = _job(tmp_path, delayed, train)
        job = yaml.safe_load(path.read_text())
        job |= {"loss": {"delayed": delayed}, "dense": {"learning_rate": 0.05}}
        job["train"] |= {"epochs": 12, "batch_size": 300}
        path.write_text(yaml.safe_dump(job))
        trained = answer(invoke("train", path, "--json"))
        assert trained["samples"] == 12 * (2 * requests + len(clicks))
        scores = tmp_path / f"{delayed}.txt"
        answer(invoke("predict", tmp_path / delayed, "--data", tmp_path / "raw.txt", "--out", scores, "--json"))
        found = [float(score) for score in scores.read_text().split()]
        for item, of in zip(ITEMS, (found[:5], found[5:]), strict=True):
            assert sum(of) / 5 == pytest.approx(expected[item], abs=0.04), (delayed, item)
