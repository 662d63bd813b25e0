"""Versions published beside the training: one at a time, the last one surely, and what they need is kept."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticctr.ps.versions import Versions
from elasticctr.train.job import PublishSettings


class Publisher:
    """In place of the child processes: each runs until it is let go or ended."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.let_go = threading.Semaphore(0)
        self.returncode = 0

    def __call__(self, command: list[str], **_: Any) -> Publisher:
        self.steps.append(int(command[command.index("--checkpoint") + 1]))
        return self

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        assert self.let_go.acquire(timeout=30)
        return None, "no room" if self.returncode else ""

    def terminate(self) -> None:
        self.returncode = -15
        self.let_go.release()


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    made = Publisher()
    monkeypatch.setattr("elasticctr.ps.versions.subprocess.Popen", made)
    return made


def make(tmp_path: Path, **settings: Any) -> tuple[Versions, list[tuple[str, dict[str, Any]]]]:
    notes: list[tuple[str, dict[str, Any]]] = []
    publish = PublishSettings(to=str(tmp_path / "repo"), **settings)
    coordinator: Any = SimpleNamespace(
        job=SimpleNamespace(publish=publish),
        course=SimpleNamespace(step=0),
        lock=threading.RLock(),
        note=lambda event, values: notes.append((event, values)),
    )
    run: Any = SimpleNamespace(path=tmp_path / "run")
    return Versions(coordinator, run), notes


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


def test_a_run_that_was_stopped_publishes_nothing_more(tmp_path: Path, publisher: Publisher) -> None:
    versions, notes = make(tmp_path)
    versions.publish(10, tmp_path / "a")
    versions.publish(20, tmp_path / "b")
    versions.close(is_finished=False)
    assert 20 not in publisher.steps and notes == []
