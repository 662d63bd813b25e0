"""Versions published from a run with pservers, beside the training: bases, made from checkpoints by a child process.

One at a time. A checkpoint that is due while another is being published waits, and is replaced by a newer one that is
due; the last of a run that finished is always published. A publisher that is killed, or finds its repository busy or
out of reach, is started again; any other failure is logged and stops nothing.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from elasticctr.errors import NotFound, Unavailable
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.train.events import read_events
from elasticctr.train.run_directory import RunDirectory

_TIMEOUT_S = 3600.0
_PAUSES_S = (0.5, 2.0, 8.0, 30.0)  # before each further try


class BackgroundPublisher:
    """Not synchronised: the director's thread calls it."""

    def __init__(self, coordinator: Coordinator, run: RunDirectory) -> None:
        self._at = coordinator
        self._settings = coordinator.job.publish
        self._run = run
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._stop = threading.Event()  # nothing more is to be published
        self._step = coordinator.course.step  # of the newest that was asked for
        self._under_way: Path | None = None
        self._next: tuple[int, Path] | None = None
        self._asked: set[int] = set()  # steps

    @property
    def is_out(self) -> bool:
        """Whether nothing is under way and nothing waits."""
        return self._next is None and not self._is_busy

    def is_owed(self, step: int) -> bool:
        """Whether no coordinator has published this step. One that died while it did may have finished all the same; a
        version twice is better than none."""
        if self._settings is None or step in self._asked:
            return False
        try:
            published = read_events(self._run.path / "events.jsonl", "publish")
        except NotFound:
            return True
        return all(event.get("of_step") != step for event in published)

    @property
    def spared(self) -> set[Path]:
        """Checkpoints that are needed still."""
        paths = {self._under_way} if self._is_busy and self._under_way is not None else set()
        return paths | ({self._next[1]} if self._next is not None else set())

    def is_due(self, step: int) -> bool:
        every = None if self._settings is None else self._settings.every_steps
        return every is not None and step // every > self._step // every

    def publish(self, step: int, checkpoint: Path) -> None:
        """Publishes a checkpoint now, or when the one before it is out."""
        if self._settings is None:
            return
        self._step = step
        self._asked.add(step)
        self._next = (step, checkpoint)
        self.run()

    def run(self) -> None:
        """Begins what waits, if nothing is under way."""
        if self._next is None or self._is_busy:
            return
        (step, self._under_way), self._next = self._next, None
        self._thread = threading.Thread(target=self._run_child, args=(self._command(step),), name="elasticctr-publish")
        self._thread.start()

    def close(self, *, is_finished: bool) -> None:
        """Waits for the last version of a run that is finished. Of any other, nothing more is published."""
        if not is_finished:
            self._give_up()
        while self._thread is not None:
            self._thread.join()
            self._thread = None
            if is_finished:
                self.run()

    def _give_up(self) -> None:
        """A child that is ended leaves nothing that could be taken for a version."""
        self._stop.set()
        with self._at.lock:
            if self._child is not None:
                self._child.terminate()

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _command(self, step: int) -> list[str]:
        settings = self._settings
        assert settings is not None
        command = [sys.executable, "-m", "elasticctr", "publish", str(self._run.path), "--repo", settings.to, "--base"]
        command += ["--checkpoint", str(step), "--encoding", settings.encoding]
        command += ["--model", settings.model] if settings.model else []
        return command + (["--keep", str(settings.keep)] if settings.keep else [])

    def _run_child(self, command: list[str]) -> None:
        said, is_worth_another = self._await_child(command)
        for pause_s in _PAUSES_S:
            if not is_worth_another or self._stop.wait(pause_s):
                break
            said, is_worth_another = self._await_child(command)
        step = int(command[command.index("--checkpoint") + 1])
        with self._at.lock:
            self._child = None
            if said and not self._stop.is_set():
                self._at.note("publish_failed", {"of_step": step, "reason": said[-500:]})
            elif not said:
                self._at.note("publish", {"of_step": step, "to": command[command.index("--repo") + 1]})

    def _await_child(self, command: list[str]) -> tuple[str, bool]:
        """Why it failed, empty if it did not; and whether another try may succeed."""
        try:
            with self._at.lock:
                if self._stop.is_set():
                    return "given up", False
                child = self._child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
            _, said = child.communicate(timeout=_TIMEOUT_S)
        except OSError as e:
            return str(e), True
        except subprocess.TimeoutExpired as e:
            child.kill()
            child.communicate()
            return str(e), False
        if not child.returncode:
            return "", False
        # A negative status is the signal that ended it.
        is_worth_another = child.returncode < 0 or child.returncode == Unavailable.exit_status
        return said.strip() or f"ended with {child.returncode}", is_worth_another
