"""A role's process and its restarts, for its supervisor: the local engine, an MPI rank or a Ray actor.

The process leads its own session, so only the supervisor gets the terminal's Ctrl-C, and signals reach the process's
children too. It dies with its supervisor (parent_death.py). Call everything from one thread that lives as long as the
process: Linux ties a child to the thread that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.exits import explain_exit, is_worth_another_try
from elasticctr.errors import ConfigError, InternalError

ELASTICCTR = (sys.executable, "-m", "elasticctr")
RESTARTS_VARIABLE = "ELASTICCTR_RESTARTS"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
# A process that ran this long was healthy; the pause before its next start is short again.
WELL_AFTER_S = 60.0
_PARENT_DEATH = str(Path(__file__).with_name("parent_death.py"))


class Supervised:
    """Call `poll` often: it notices the end of the process and restarts it after a pause."""

    def __init__(
        self,
        role: RoleSpec,
        *,
        log: Path,
        max_restarts: int,
        command: Sequence[str] = ELASTICCTR,
        restarts: int = 0,
        label: str = "",
    ) -> None:
        self.role = role
        self._label = label or role.name
        self._log = log
        self._command = [*command, *role.arguments]
        self._max_restarts = max_restarts
        self._restarts = restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._start_again_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._phase = "starting"
        self._exit_status: int | None = None
        self._reason = ""
        self._is_stopping = False

    def start(self) -> None:
        environment = {**os.environ, **self.role.environment, "PYTHONUNBUFFERED": "1"}
        environment.pop(RESTARTS_VARIABLE, None)
        if self._restarts:
            environment[RESTARTS_VARIABLE] = str(self._restarts)
        dying_with_us = [sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid())]
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*dying_with_us, *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as e:
            raise InternalError(f"cannot start {self.role.name}: {e.strerror or e}") from e
        self._started_s = time.monotonic()
        self._phase = "running"
        self._exit_status = None
        self._note(f"started, process {self._process.pid}" + (f", restart {self._restarts}" if self._restarts else ""))

    def poll(self) -> RoleState:
        if self._phase == "running" and self._process is not None:
            # Checked before it is reaped: until then its number cannot be reused, so its group can be signalled.
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                # Its children must end too: the new process needs their ports and files.
                self._signal(signal.SIGKILL)
                self._see_end(self._process.wait())
        elif self._phase == "restarting" and not self._is_stopping and time.monotonic() >= self._start_again_s:
            self._restarts += 1
            self.start()
        return self.state()

    def state(self) -> RoleState:
        is_running = self._phase == "running" and self._process is not None
        return RoleState(
            self.role.name,
            self._phase,  # type: ignore[arg-type]
            host=socket.gethostname(),
            pid=self._process.pid if is_running and self._process is not None else None,
            restarts=self._restarts,
            exit_status=self._exit_status,
            log=str(self._log),
            reason=self._reason,
        )

    def ask_to_end(self) -> None:
        """SIGTERM, and no more restarts."""
        self._is_stopping = True
        if self._phase == "restarting":
            self._phase = "ended"
        self._signal(signal.SIGTERM)

    def kill(self, wait_s: float = 5.0) -> None:
        """SIGKILL to the process and its children. Returns when the process is gone."""
        self._is_stopping = True
        self._signal(signal.SIGKILL)
        deadline_s = time.monotonic() + wait_s
        while self.poll().phase == "running" and time.monotonic() < deadline_s:
            time.sleep(0.005)

    def _see_end(self, status: int) -> None:
        self._exit_status, self._reason = status, explain_exit(status)
        self._note(self._reason)
        if status == 0 or self._is_stopping:
            self._phase = "ended"
        elif not self.role.restart or not is_worth_another_try(status):
            self._phase = "failed"
        elif self._restarts >= self._max_restarts:
            self._phase = "failed"
            self._reason += f", after {self._restarts} restarts" if self._restarts else ""
        else:
            self._phase = "restarting"
            if time.monotonic() - self._started_s > WELL_AFTER_S:
                self._pause_s = FIRST_PAUSE_S
            self._start_again_s = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._phase != "running":
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _note(self, text: str) -> None:
        """Writes a line of our own into the role's log."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError), self._log.open("ab") as log:
            log.write(f"--- {stamp} {self._label} {text}\n".encode())


def prepare_log(log_dir: str | Path, name: str) -> Path:
    """Opens the log of a role; creates its directory."""
    directory = Path(log_dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.log"
        path.touch()
    except OSError as e:
        raise ConfigError(f"{directory}: cannot write logs here: {e.strerror or e}") from None
    return path


def last_words(log: str | Path, count: int = 3) -> str:
    """The last lines that a role printed, for a message about its end."""
    try:
        with Path(log).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip() and not line.startswith("--- ")]
    return " / ".join(said[-count:])
