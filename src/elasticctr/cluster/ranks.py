"""The ranks of an mpirun: the roles that each supervises, and the files in which they report their states.

Rank 0 runs the coordinator and the first pserver, every further rank one pserver, standby or trainer. The plan is
`<run>/cluster/ranks.json`; rank n writes the states of its roles to `<run>/cluster/ranks/n.json`. The run directory
must therefore be shared by all machines, as for checkpoints. A rank needs nothing from MPI but its number.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.local import LocalEngine
from elasticctr.cluster.parent_death import die_with_parent
from elasticctr.errors import ConfigError, DeadlineExceeded, ElasticCTRError
from elasticctr.storage.atomic import write_atomic

PLAN_WAIT_S = 120.0
BEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class RankPlan:
    launch: str  # identifies this start of the run; files of earlier ones are ignored
    command: Sequence[str]
    log_dir: str
    max_restarts: int
    ranks: Sequence[Sequence[RoleSpec]]

    def write(self, directory: Path) -> None:
        states = directory / "ranks"
        states.mkdir(parents=True, exist_ok=True)
        for old in states.iterdir():
            old.unlink(missing_ok=True)
        write_atomic(directory / "ranks.json", json.dumps(asdict(self)).encode())


def divide_roles(roles: Sequence[RoleSpec]) -> list[list[RoleSpec]]:
    """The roles of each rank. The coordinator needs few resources and shares the first rank with the first pserver."""
    ranks: list[list[RoleSpec]] = []
    for role in roles:
        if len(ranks) == 1 and len(ranks[0]) == 1 and ranks[0][0].kind == "coordinator":
            ranks[0].append(role)
        else:
            ranks.append([role])
    return ranks


def read_plan(directory: Path, launch: str) -> RankPlan:
    """Waits for the plan of this launch, written by the first rank or by the process that ran mpirun."""
    path, deadline_s = directory / "ranks.json", time.monotonic() + PLAN_WAIT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError, ValueError):
            given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if given.get("launch") == launch:
                ranks = [[RoleSpec(**role) for role in roles] for roles in given["ranks"]]
                return RankPlan(launch, given["command"], given["log_dir"], given["max_restarts"], ranks)
        time.sleep(0.05)
    raise DeadlineExceeded(
        f"{path}: no plan for this start within {PLAN_WAIT_S:.0f} s; check that all machines share the run directory"
    )


def read_states(directory: Path, launch: str, roles: Sequence[RoleSpec]) -> list[RoleState]:
    """The states last reported by the ranks; roles of ranks without a report are starting."""
    known: dict[str, RoleState] = {}
    for path in sorted((directory / "ranks").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            said = json.loads(path.read_text(encoding="utf-8"))
            if said["launch"] == launch:
                known |= {state["name"]: RoleState(**state) for state in said["roles"]}
    return [known.get(role.name, RoleState(role.name, "starting")) for role in roles]


def rank_of(environ: Mapping[str, str]) -> tuple[int, int, int] | None:
    """(rank, ranks, ranks on this machine) from Open MPI's variables; None outside mpirun."""
    try:
        return (
            int(environ["OMPI_COMM_WORLD_RANK"]),
            int(environ["OMPI_COMM_WORLD_SIZE"]),
            int(environ["OMPI_COMM_WORLD_LOCAL_SIZE"]),
        )
    except KeyError:
        return None
    except ValueError:
        raise ConfigError("OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE are not numbers; is this Open MPI?") from None


def supervise_rank(directory: Path, plan: RankPlan, rank: int) -> None:
    """Runs this rank's roles until they end or mpirun ends it. After a role failed for good the rank reports it and
    stays: if it ended, mpirun would kill all others before they could be stopped in order."""
    is_asked_to_end = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked_to_end
        is_asked_to_end = True

    previous = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    roles = plan.ranks[rank]
    engine = LocalEngine(plan.command)
    engine.start(roles, log_dir=plan.log_dir, max_restarts=plan.max_restarts)
    noted: list[RoleState] = []

    def is_over() -> bool:
        nonlocal noted
        states = engine.states()
        if states != noted:
            noted = states
            about = {"launch": plan.launch, "roles": [asdict(state) for state in states]}
            with contextlib.suppress(ElasticCTRError):  # a full disk must not end the roles
                write_atomic(directory / "ranks" / f"{rank}.json", json.dumps(about).encode())
        for role in roles:
            if (directory / "ranks" / f"remove-{role.name}").exists() and _is_up(role.name, states):
                engine.remove(role.name)
        return is_asked_to_end or all(state.phase == "ended" for state in states)

    try:
        while not is_over():
            engine.wait(is_over, poll_s=0.1)
            if not is_asked_to_end and any(state.phase == "failed" for state in engine.states()):
                time.sleep(0.1)
    finally:
        engine.stop()
        is_over()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_up(name: str, states: Sequence[RoleState]) -> bool:
    return any(state.name == name and state.phase in ("running", "restarting") for state in states)


def main() -> None:
    """`python -m elasticctr.cluster.ranks DIRECTORY LAUNCH`, started by mpirun once per rank."""
    die_with_parent(os.getppid())
    directory, launch = Path(sys.argv[1]), sys.argv[2]
    place = rank_of(os.environ)
    try:
        if place is None:
            raise ConfigError("this must be started by mpirun, which sets OMPI_COMM_WORLD_RANK")
        plan = read_plan(directory, launch)
        if place[1] != len(plan.ranks):
            raise ConfigError(f"mpirun started {place[1]} ranks, but the job needs {len(plan.ranks)}")
        supervise_rank(directory, plan, place[0])
    except ElasticCTRError as e:
        sys.stderr.write(f"elasticctr: {e.code}: {e}\n")
        sys.exit(e.exit_status)


if __name__ == "__main__":
    main()
