"""The torchrun engine, for the strategy collective: torch's own launcher starts the ranks and restarts them as a group.

As a module it is what torchrun starts for each rank: it runs `elasticctr trainer` with a log of its own. A rank that
was interrupted exits with 0, because torchrun would restart it otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.local import GRACE_S
from elasticctr.cluster.parent_death import die_with_parent
from elasticctr.cluster.supervised import ELASTICCTR, Supervised, last_words, prepare_log
from elasticctr.errors import ConfigError, ElasticCTRError, FailedPrecondition
from elasticctr.storage.atomic import write_json

INTERRUPTED = 130
STOP = "stop"
# How long a rank that was told to stop outlives its peers.
ALONE_S = 5.0


class TorchrunEngine:
    """Roles are trainers with equal arguments, distinguished by torchrun's RANK. `directory` is `<run>/cluster`."""

    name = "torchrun"

    def __init__(self, directory: Path, *, command: Sequence[str] = ELASTICCTR) -> None:
        self._directory = directory
        self._command = command
        self._roles: Sequence[RoleSpec] = ()
        self._log_dir = Path("logs")
        self._torchrun: Supervised | None = None

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        if not roles or any(role.kind != "trainer" for role in roles):
            raise ConfigError("torchrun only starts trainers of the strategy collective")
        self._roles, self._log_dir = roles, Path(log_dir)
        states = self._directory / "ranks"
        states.mkdir(parents=True, exist_ok=True)
        for old in states.iterdir():
            old.unlink(missing_ok=True)
        log = prepare_log(log_dir, "torchrun")
        flags = [*_meeting(self._directory), "--nproc-per-node", str(len(roles)), "--max-restarts", str(max_restarts)]
        rank = ["-m", "elasticctr.cluster.torchrun", str(states), log_dir, json.dumps([*self._command])]
        # Without torchrun's own store rank 0 listens, and only on this machine's loopback.
        environment = {**roles[0].environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        launcher = RoleSpec("trainer", 0, [*flags, *rank, *roles[0].arguments], environment, restart=False)
        command = (sys.executable, "-m", "torch.distributed.run")
        self._torchrun = Supervised(launcher, log=log, max_restarts=0, command=command, label="torchrun")
        self._torchrun.start()

    def states(self) -> list[RoleState]:
        if self._torchrun is None:
            return []
        group = self._torchrun.state()
        return [self._state(index, role, group) for index, role in enumerate(self._roles)]

    def add(self, role: RoleSpec) -> None:
        raise FailedPrecondition("a collective group keeps its size; stop, and resume with more or fewer trainers")

    def remove(self, name: str) -> None:
        raise FailedPrecondition("a collective group keeps its size; stop, and resume with more or fewer trainers")

    def interrupt(self) -> None:
        """Tells one rank to stop; all of them stop with the next step. Ranks that are still starting end at once."""
        (self._directory / "ranks" / STOP).touch()
        for state in self.states():
            if state.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state.pid, signal.SIGTERM)
                return

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        while True:
            if self._torchrun is not None:
                self._torchrun.poll()
            states = self.states()
            if any(state.phase == "failed" for state in states) or is_over():
                return states
            time.sleep(poll_s)

    def stop(self, grace_s: float = GRACE_S) -> None:
        if self._torchrun is None:
            return
        self._torchrun.ask_to_end()
        deadline_s = time.monotonic() + grace_s
        while self._torchrun.poll().phase == "running" and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self._torchrun.kill()

    def _state(self, index: int, role: RoleSpec, group: RoleState) -> RoleState:
        said: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError):
            said = json.loads((self._directory / "ranks" / f"{index}.json").read_text(encoding="utf-8"))
        log = str(self._log_dir / f"{role.name}.log")
        pid = said.get("pid") if group.phase == "running" else None
        status, reason = group.exit_status, group.reason
        if group.phase == "failed":
            # torchrun's own status is always 1; the rank's says more.
            status = said.get("status", status)
            reason = f"{reason}; {last_words(log, 1)}"
        phase = group.phase if group.phase != "running" or pid is not None else "starting"
        return RoleState(role.name, phase, group.host, pid, int(said.get("restarts", 0)), status, log, reason)


def _meeting(directory: Path) -> list[str]:
    """Uses a file as the rendezvous: torchrun's own store would listen on every address of the machine."""
    place = directory / "rendezvous"
    place.unlink(missing_ok=True)
    place.touch(mode=0o600)
    name = f"--rdzv-id={os.getpid()}-{time.time_ns()}"
    how = ["--rdzv-backend=c10d", f"--rdzv-endpoint={place}", "--rdzv-conf=store_type=file"]
    return ["--nnodes=1", name, *how, "--local-addr=127.0.0.1"]


def main() -> None:
    """`python -m elasticctr.cluster.torchrun STATES LOG_DIR COMMAND ARGUMENT…`, once per rank."""
    die_with_parent(os.getppid())
    states, log_dir, command = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    rank, restarts = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    role = RoleSpec("trainer", rank, sys.argv[4:], restart=False)
    one = Supervised(role, log=prepare_log(log_dir, role.name), max_restarts=0, command=command, restarts=restarts)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: one.ask_to_end())
    one.start()
    _note(states / f"{rank}.json", {"pid": one.state().pid, "restarts": restarts})
    alone_s: float | None = None
    while (state := one.poll()).phase == "running":
        time.sleep(0.05)
        if (states / STOP).exists() and alone_s is None and _has_ended(states, rank):
            alone_s = time.monotonic()
        if alone_s is not None and time.monotonic() - alone_s > ALONE_S:
            one.kill()  # it waits for ranks that have ended
    status = state.exit_status or 0
    _note(states / f"{rank}.json", {"restarts": restarts, "status": status})
    is_in_order = status == INTERRUPTED or (states / STOP).exists()
    sys.exit(0 if is_in_order else status if status >= 0 else 128 - status)


def _has_ended(states: Path, but: int) -> bool:
    for path in states.glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if path.stem != str(but) and "status" in json.loads(path.read_text(encoding="utf-8")):
                return True
    return False


def _note(path: Path, about: dict[str, int | None]) -> None:
    with contextlib.suppress(ElasticCTRError):
        write_json(path, about)


if __name__ == "__main__":
    main()
