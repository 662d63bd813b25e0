"""Versions published beside the training: one at a time, the last one surely, and what they need is kept."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.ps.conftest import make_job

from elasticctr.net.access import Tokens
from elasticctr.ps.coordinator.background_publisher import BackgroundPublisher
from elasticctr.ps.coordinator.process import run_coordinator
from elasticctr.train.job import PublishSettings


class Publisher:
    """In place of the child processes: each runs until it is let go or ended."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.let_go = threading.Semaphore(0)
        self.returncode = 0
        self.statuses: list[int] = []  # of the next children; then `returncode`

    def __call__(self, command: list[str], **_: Any) -> Publisher:
        self.steps.append(int(command[command.index("--checkpoint") + 1]))
        return self

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        assert self.let_go.acquire(timeout=30)
        if self.statuses:
            self.returncode = self.statuses.pop(0)
        return None, "no room" if self.returncode else ""

    def terminate(self) -> None:
        self.returncode = -15
        self.let_go.release()


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    made = Publisher()
    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    monkeypatch.setattr(
        "elasticctr.ps.coordinator.background_publisher.subprocess", SimpleNamespace(Popen=made, **names)
    )
    return made


def make(tmp_path: Path, **settings: Any) -> tuple[BackgroundPublisher, list[tuple[str, dict[str, Any]]]]:
    notes: list[tuple[str, dict[str, Any]]] = []
    publish = PublishSettings(to=str(tmp_path / "repo"), **settings)
    coordinator: Any = SimpleNamespace(
        job=SimpleNamespace(publish=publish),
        course=SimpleNamespace(step=0),
        lock=threading.RLock(),
        note=lambda event, values: notes.append((event, values)),
    )
    run: Any = SimpleNamespace(path=tmp_path / "run")
    return BackgroundPublisher(coordinator, run), notes


def test_what_is_due_meanwhile_waits_and_the_last_is_published(tmp_path: Path, publisher: Publisher) -> None:
    versions, notes = make(tmp_path, every_steps=10)
    assert not versions.is_due(9) and versions.is_due(10)
    paths = {step: tmp_path / f"step-{step}" for step in (10, 20, 30)}
    for step, path in paths.items():
        versions.publish(step, path)
    assert versions.spared == {paths[10], paths[30]}  # the one between is as good as the last
    assert not versions.is_due(39) and versions.is_due(40)
    publisher.let_go.release(2)
    versions.close(is_finished=True)
    assert publisher.steps == [10, 30] and versions.spared == set()
    assert notes == [("publish", {"of_step": step, "to": str(tmp_path / "repo")}) for step in (10, 30)]


def test_a_failure_is_said(tmp_path: Path, publisher: Publisher) -> None:
    versions, notes = make(tmp_path, keep=3)
    assert not versions.is_due(1_000_000)  # each epoch's end only
    publisher.returncode = 1
    versions.publish(10, tmp_path / "a")
    publisher.let_go.release()
    versions.close(is_finished=True)
    assert notes == [("publish_failed", {"of_step": 10, "reason": "no room"})]


@pytest.mark.promise(
    "the process that publishes a run's last version is killed, or its repository is busy",
    "it is restarted until the version is published",
)
def test_a_publisher_that_was_killed_is_started_again(
    tmp_path: Path, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticctr.ps.coordinator.background_publisher._PAUSES_S", (0.0, 0.0, 0.0))
    versions, notes = make(tmp_path)
    publisher.statuses = [-9, 17, 0]
    versions.publish(10, tmp_path / "a")
    publisher.let_go.release(3)
    versions.close(is_finished=True)
    assert publisher.steps == [10, 10, 10] and [event for event, _ in notes] == ["publish"]

    publisher.statuses = [-9, -9, -9, -9]
    versions.publish(20, tmp_path / "b")
    publisher.let_go.release(4)
    versions.close(is_finished=True)
    assert publisher.steps[3:] == [20] * 4 and notes[-1][0] == "publish_failed"


def test_a_run_that_was_stopped_publishes_nothing_more(tmp_path: Path, publisher: Publisher) -> None:
    versions, notes = make(tmp_path)
    versions.publish(10, tmp_path / "a")
    versions.publish(20, tmp_path / "b")
    versions.close(is_finished=False)
    assert 20 not in publisher.steps and notes == []


def test_a_version_that_a_coordinator_died_over_is_owed(tmp_path: Path, publisher: Publisher) -> None:
    versions, _ = make(tmp_path)
    assert (versions.is_out, versions.is_owed(10)) == (True, True)
    log = tmp_path / "run" / "events.jsonl"
    log.parent.mkdir()
    log.write_text('{"event":"publish","time":1.0,"of_step":10}\n{"event":"publish_failed","time":1.0,"of_step":20}\n')
    assert not versions.is_owed(10) and versions.is_owed(20)
    versions.publish(20, tmp_path / "a")
    assert not versions.is_out and not versions.is_owed(20)
    publisher.let_go.release()
    versions.close(is_finished=True)
    assert versions.is_out


@pytest.mark.promise(
    "a coordinator killed while the last version of a run is published",
    "the run has not ended yet, so the next coordinator publishes it",
)
def test_a_run_is_over_when_its_last_version_is_out(tmp_path: Path, world: Any, publisher: Publisher) -> None:
    job = make_job(tmp_path, publish={"to": str(tmp_path / "repo")})
    w = world(job)
    w.start()
    for shard in range(2):
        w.add_pserver(shard)
    for name in ("a", "b"):
        w.add_trainer(name)
    w.wait_for(lambda: w.status()["phase"] == "publishing")
    journal = tmp_path / "run" / "ledger" / "journal.jsonl"
    assert publisher.steps and '"end"' not in journal.read_text()
    publisher.let_go.release(10)
    assert w.result() is True
    assert '"end"' in journal.read_text()
    # The one that takes its place, killed a moment later, has nothing left to do.
    assert run_coordinator(job, host="127.0.0.1", port=0, tokens=Tokens(), is_restarted=True) is True
