"""The orchestrator's side of the line protocol: one worker process, with one command at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from contenders.roster import Cell, Contender

SCRIPTS = Path(__file__).parent
READY_S, ANSWER_S, QUIT_S = 300.0, 600.0, 20.0
# oneDNN asks CPUID for the shape of AMX tiles; some virtual machines announce AMX and hide that leaf. bfloat16 then
# dies with "could not create a primitive" or an illegal instruction, unless oneDNN is kept below AMX.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


class WorkerError(Exception):
    """The process ended or does not answer; the message is its last line on standard error."""


class Worker:
    def __init__(
        self, contender: Contender, cell: Cell, python: Path, folder: Path, scratch: Path, settings: dict[str, str]
    ) -> None:
        """Starts the process; `wait_ready` waits for it."""
        self.settings = settings
        self.version = ""
        self._origin = (contender, cell, python, folder, scratch)
        self._log = scratch / "logs" / f"{contender.name.replace(' ', '-')}-{cell}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | contender.settings | settings
        # Compiled kernels are kept for the next run; compiling in the worker itself leaves no pool of idle helpers.
        environment |= {"TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if contender.environment:  # nothing of ours may leak into theirs
            environment["PYTHONPATH"] = ""
        order = [contender.variant, cell.precision, str(cell.batch_size), str(folder)]
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [python, SCRIPTS / contender.script, *order],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_ready(self) -> None:
        self.version = json.loads(self._next_line(READY_S).removeprefix("READY"))["version"]

    def restart(self, settings: dict[str, str]) -> Worker:
        """Starts the same worker in a new process with other environment variables, after this one has ended."""
        return Worker(*self._origin, settings)

    def run(self, seconds: float) -> dict[str, Any]:
        return self._ask(f"run {seconds}")

    def score(self, seed: int) -> dict[str, Any]:
        return self._ask(f"auc {seed}")

    def quit(self) -> None:
        """Asks the process to end; `join` waits for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write("quit\n")
            self._process.stdin.close()

    def join(self) -> None:
        try:
            self._process.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerError(self._last_words()) from None
        answer: dict[str, Any] = json.loads(self._next_line(ANSWER_S))
        return answer

    def _next_line(self, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._process.kill()
            raise WorkerError(f"no answer within {timeout_s:.0f} s; {self._last_words()}") from None
        if not line:
            raise WorkerError(self._last_words())
        return line

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("READY", "{")):  # peers print other things there too
                self._lines.put(line)
        self._lines.put("")

    def _last_words(self) -> str:
        status = self._process.wait()
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"{lines[-1].strip()[:300]} ({ended})" if lines else ended
