"""The report: whole, self-contained, escaped, and possible from whatever a killed run left behind."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import DataError, NotFound
from elasticctr.train.events import EventWriter
from elasticctr.train.metrics.metrics import Metrics
from elasticctr.train.report.report import main_split, write_report

EVIL = "<script>alert('x')</script>&\"$title ${x}"
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Checks that tags close in order, and keeps texts, attributes and tables."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.links, self.text = list[str](), list[str](), list[str | None](), ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_run(tmp_path / "my-run")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written once for all tests that only read it."""
    return write_report(make_run(tmp_path_factory.mktemp("runs") / "my-run"))


def make_run(run: Path) -> Path:
    (run / "checkpoints" / "step-20").mkdir(parents=True)
    (run / "job.yaml").write_text(f"model: deepfm\nnote: {EVIL}\n")
    (run / "environment.json").write_text(
        json.dumps({"host": EVIL, "cpu": "Fast CPU", "packages": {"torch": "2.13.0"}})
    )
    with EventWriter(run / "events.jsonl") as events:
        events.write(
            "start", 0, 0, 1, {"commands": {"Resume": "elasticctr resume-me", "Evaluate": "elasticctr eval-me"}}
        )
        events.write("data", 0, 0, 1, {"split": "train", "files": 2, "rows": 123_456, "bad_lines": 17})
        for step in (10, 20):
            events.write("train", step, step * 512, 1, {"loss": 0.3, "auc": 0.7, "samples_per_s": 50_000 + step})
            events.write("eval", step, step * 512, 1, {"split": EVIL, "auc": 0.71, "logloss": 0.31})
            events.write("checkpoint", step, step * 512, 1, {"path": f"checkpoints/step-{step}"})
        events.write("end", 20, 10_240, 1, {"reason": "finished", "seconds": 12.5, "best_step": 20})
    rng = np.random.default_rng(0)
    metrics = Metrics()
    metrics.update(rng.normal(size=2000) - 2, rng.random(2000) < 0.2)
    final = {**metrics.as_dict(), **metrics.curves()}
    (run / "metrics.json").write_text(json.dumps({EVIL: final, "test": final}))
    return run


def test_report_tells_the_whole_run(report: Path) -> None:
    assert report.name == "report.html"
    page = Page(report.read_text(encoding="utf-8"))
    final = json.loads((report.parent / "metrics.json").read_text())["test"]
    for text in (
        "my-run",
        f"{final['auc']:.5g}",
        f"{final['logloss']:.5g}",
        "123,456",
        "17",
        "Fast CPU",
        "2.13.0",
        "model: deepfm",
        "elasticctr resume-me",
        "elasticctr eval-me",
        "12.5",
        "50,010 – 50,020",
        "checkpoints/step-20",
    ):
        assert text in page.text, text
    assert "checkpoints/step-10" not in page.text  # rotated away
    assert page.tags.count("img") == 5
    assert page.text.count(" – ") >= len(final["calibration"])


def test_report_needs_no_network_and_runs_no_script(report: Path) -> None:
    text = report.read_text()
    page = Page(text)
    assert "script" not in page.tags and "link" not in page.tags and "iframe" not in page.tags
    assert page.links and all((link or "").startswith("data:image/png;base64,") for link in page.links)
    assert "http://" not in text and "https://" not in text and "url(" not in text


def test_everything_is_escaped(report: Path) -> None:
    text = report.read_text()
    assert "<script" not in text and "alert('x')" not in text
    assert Page(text).text.count(EVIL) >= 3


def test_report_is_made_again_from_the_directory_alone(run_dir: Path) -> None:
    first = write_report(run_dir).read_text()
    moved = run_dir.rename(run_dir.with_name("moved"))
    assert write_report(moved).read_text() == first.replace("my-run", "moved")
    assert not list(moved.glob("*.part"))


@pytest.mark.parametrize("missing", [("job.yaml", "environment.json", "metrics.json"), ("events.jsonl",)])
def test_missing_files_leave_a_smaller_report(run_dir: Path, missing: tuple[str, ...]) -> None:
    for name in missing:
        (run_dir / name).unlink()
    Page(write_report(run_dir).read_text())


def test_a_killed_run_says_so(run_dir: Path) -> None:
    (run_dir / "metrics.json").unlink()
    events = run_dir / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-30])
    text = Page(write_report(run_dir).read_text()).text
    assert "not finished" in text and "No final metrics" in text


def test_one_class_shows_a_dash(run_dir: Path) -> None:
    metrics = Metrics()
    metrics.update(np.zeros(5), np.zeros(5))
    (run_dir / "metrics.json").write_text(json.dumps({"test": {**metrics.as_dict(), **metrics.curves()}}))
    page = Page(write_report(run_dir).read_text())
    assert "auc–" in page.text.replace("\n", "")


def test_wrong_places_and_damaged_files_are_typed_errors(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such run directory"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="is this a run directory"):
        write_report(tmp_path / "empty")
    for content in ("{", "[]"):
        (run_dir / "metrics.json").write_text(content)
        with pytest.raises(DataError, match=r"metrics\.json"):
            write_report(run_dir)


def test_the_headline_is_of_unseen_data() -> None:
    assert main_split({"train": {}, "validation": {}, "test": {}}) == "test"
    assert main_split({"train": {}, "validation": {}}) == "validation"
    assert main_split({"day-7": {}}) == "day-7"
    assert main_split({}) is None
