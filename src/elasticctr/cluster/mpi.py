"""The MPI engine: mpirun places and starts one small supervisor per rank, which runs and restarts its roles.

There are two ways to start: `elasticctr train JOB --on mpi [--hostfile F]` runs mpirun itself and stays outside; with
`mpirun -n N elasticctr train JOB --on mpi` each process is a rank and rank 0 leads (mpi_run.py). mpi4py and libmpi are
not needed: ranks only need their number.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.launch import LOOPBACK
from elasticctr.cluster.local import GRACE_S, LocalEngine, check_names
from elasticctr.cluster.ranks import RankPlan, divide_roles, read_states
from elasticctr.cluster.supervised import ELASTICCTR, Supervised, last_words, prepare_log
from elasticctr.errors import ConfigError, FailedPrecondition, NotFound
from elasticctr.train.cluster_settings import ClusterSettings


class MpiEngine:
    """`directory` is `<run>/cluster`, visible to all machines. Inside mpirun, for rank 0, `is_rank` is true and
    `launch_name` is common to all ranks of this mpirun."""

    name = "mpi"

    def __init__(
        self,
        directory: Path,
        *,
        hostfile: Path | None = None,
        command: Sequence[str] = ELASTICCTR,
        is_rank: bool = False,
        launch_name: str = "",
    ) -> None:
        self._directory = directory
        self._hostfile = hostfile
        self._command = command
        self._is_rank = is_rank
        self._launch = launch_name or secrets.token_hex(8)
        self._roles: list[RoleSpec] = []
        self._mpirun: Supervised | None = None
        self._own: LocalEngine | None = None
        self._own_states: dict[str, RoleState] = {}

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        check_names(roles)
        ranks = divide_roles(roles)
        mpirun = [] if self._is_rank else find_mpirun()
        if not self._is_rank:
            check_slots(self._hostfile, len(ranks))
        self._roles = list(roles)
        RankPlan(self._launch, list(self._command), log_dir, max_restarts, ranks).write(self._directory)
        if self._is_rank:
            self._own = LocalEngine(self._command)
            self._own.start(ranks[0], log_dir=log_dir, max_restarts=max_restarts)
            return
        where = ["--hostfile", str(self._hostfile)] if self._hostfile else ["--oversubscribe"]
        supervisor = [sys.executable, "-m", "elasticctr.cluster.ranks", str(self._directory), self._launch]
        arguments = [*where, "--bind-to", "none", "-n", str(len(ranks)), *supervisor]
        role = RoleSpec("coordinator", 0, arguments, restart=False)
        log = prepare_log(log_dir, "mpirun")
        self._mpirun = Supervised(role, log=log, max_restarts=0, command=mpirun, label="mpirun")
        self._mpirun.start()

    def states(self) -> list[RoleState]:
        states = read_states(self._directory, self._launch, self._roles)
        own = {state.name: state for state in self._own.states()} if self._own is not None else {}
        states = [own.get(state.name, state) for state in states]
        if self._mpirun is None or (ended := self._mpirun.state()).phase in ("starting", "running"):
            return states
        # Without mpirun no rank is left; roles that had not ended were ended by it.
        log = ended.log
        reason = f"was ended with mpirun, which {ended.reason}: {last_words(log)}"
        gone: list[RoleState] = []
        for state in states:
            is_over = state.phase in ("ended", "failed")
            phase = state.phase if is_over else "ended" if ended.exit_status == 0 else "failed"
            status = state.exit_status if is_over else ended.exit_status
            why = state.reason if is_over else reason
            own_log = state.log or log
            gone.append(RoleState(state.name, phase, state.host, None, state.restarts, status, own_log, why))
        return gone

    def add(self, role: RoleSpec) -> None:
        raise FailedPrecondition("mpirun starts all ranks at once and cannot add roles; start further trainers by hand")

    def remove(self, name: str) -> None:
        if name not in [role.name for role in self._roles]:
            raise NotFound(
                f"no role {name} is running here; running are {', '.join(role.name for role in self._roles)}"
            )
        if self._own is not None and name in [state.name for state in self._own.states()]:
            self._own.remove(name)
            return
        (self._directory / "ranks" / f"remove-{name}").touch()
        deadline_s = time.monotonic() + 2 * GRACE_S
        while time.monotonic() < deadline_s:
            if any(state.name == name and state.phase in ("ended", "failed") for state in self.states()):
                return
            time.sleep(0.05)

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        while True:
            if self._mpirun is not None:
                self._mpirun.poll()
            if self._own is not None:
                self._own.wait(lambda: True)
            states = self.states()
            if any(state.phase == "failed" for state in states) or is_over():
                return states
            time.sleep(poll_s)

    def stop(self, grace_s: float = GRACE_S) -> None:
        if self._own is not None:
            self._own.stop(grace_s)
        # Ranks end their roles in order; mpirun kills a rank it has told to end within a second.
        deadline_s = time.monotonic() + grace_s
        for role in self._roles:
            (self._directory / "ranks" / f"remove-{role.name}").touch()
        while time.monotonic() < deadline_s:
            if self._mpirun is not None:
                self._mpirun.poll()
            if all(state.phase in ("ended", "failed") for state in self.states()):
                break
            time.sleep(0.05)
        if self._mpirun is not None:
            _end(self._mpirun)


def _end(mpirun: Supervised) -> None:
    deadline_s = time.monotonic() + 3.0  # usually ends by itself once its ranks have
    while mpirun.poll().phase == "running" and time.monotonic() < deadline_s:
        time.sleep(0.02)
    mpirun.ask_to_end()
    deadline_s = time.monotonic() + GRACE_S
    while mpirun.poll().phase == "running" and time.monotonic() < deadline_s:
        time.sleep(0.02)
    mpirun.kill()


def find_mpirun() -> list[str]:
    """The command, with flags that root needs: the machine's mpirun, or that of the extra `mpi` beside this Python."""
    found = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))
    if found is None:
        raise FailedPrecondition(
            "mpirun not found; run pip install 'elasticctr[mpi]' or apt-get install openmpi-bin on every machine"
        )
    return [found, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def read_hostfile(path: Path) -> list[tuple[str, int]]:
    """(host, slots) per line, counted like mpirun: one without `slots=`, and repeated lines add up."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: cannot read the hostfile: {e}") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = [
            word.partition("=")[2] for word in words[1:] if word.startswith(("slots=", "max_slots=", "max-slots="))
        ]
        if any(not text.isdigit() for text in slots):
            raise ConfigError(f"{path}:{number}: slots= needs a number")
        hosts[words[0]] = hosts.get(words[0], 0) + (int(slots[0]) if slots else 1)
    if not hosts:
        raise ConfigError(f"{path}: lists no host; write lines of the form `HOST slots=N`")
    return list(hosts.items())


def check_slots(hostfile: Path | None, ranks: int) -> None:
    if hostfile is None:
        return
    slots = sum(count for _, count in read_hostfile(hostfile))
    if slots < ranks:
        raise ConfigError(
            f"the job needs {ranks} ranks, but {hostfile} has {slots} slots; raise slots= or use fewer roles"
        )


def check_hosts(hosts: Sequence[str], settings: ClusterSettings) -> None:
    """Refuses an address that other machines cannot reach."""
    here = {*LOOPBACK, socket.gethostname(), socket.getfqdn()}
    elsewhere = [host for host in hosts if host not in here and not host.startswith("127.")]
    if elsewhere and settings.host in LOOPBACK:
        raise ConfigError(
            f"roles on {elsewhere[0]} could not reach other machines at cluster.host {settings.host}; "
            "set cluster.host to 0.0.0.0"
        )
