"""What runs on a Ray node: an actor that supervises one role's process there.

Ray restarts the actor, on another node if its own is lost; the actor restarts the process. What the process prints is
kept beside the actor and handed over piece by piece, so that logs of all nodes end up in the run directory.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ray
import ray.util

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.supervised import ELASTICCTR, Supervised, prepare_log

PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class News:
    """What an actor says of its role."""

    incarnation: str  # of the actor: another one after a restart by Ray
    state: RoleState  # restarts: of the process, by this incarnation
    offset: int  # of the log after `printed`
    printed: bytes
    is_all: bool  # whether `printed` goes to the end of the log


class RoleActor:
    """Made by `ray.remote`. Its methods run in one thread, the one that made the process."""

    def __init__(self, role: RoleSpec, max_restarts: int, command: Sequence[str] | None) -> None:
        # Others are told where the process listens: this node, as the nodes of this cluster know it.
        environment = {"ELASTICCTR_ADVERTISE": ray.util.get_node_ip_address(), **role.environment}
        self._first = 1 if ray.get_runtime_context().was_current_actor_reconstructed else 0
        self._incarnation = secrets.token_hex(4)
        self._directory = Path(tempfile.mkdtemp(prefix="elasticctr-role-"))
        self._log = prepare_log(self._directory, role.name)
        self._supervised = Supervised(
            replace(role, environment=environment),
            log=self._log,
            max_restarts=max_restarts + self._first,
            command=ELASTICCTR if command is None else command,
            restarts=self._first,
        )
        self._supervised.start()

    def poll(self, incarnation: str, offset: int) -> News:
        """`offset`: how much of this incarnation's log the caller has."""
        state = self._supervised.poll()
        start = offset if incarnation == self._incarnation else 0
        with self._log.open("rb") as log:
            log.seek(start)
            printed = log.read(PIECE)
        is_all = len(printed) < PIECE
        state = replace(state, host=ray.util.get_node_ip_address(), restarts=state.restarts - self._first, log="")
        return News(self._incarnation, state, start + len(printed), printed, is_all)

    def ask_to_end(self) -> None:
        self._supervised.ask_to_end()

    def end(self, grace_s: float) -> None:
        """Returns when the process is gone."""
        self._supervised.ask_to_end()
        deadline_s = time.monotonic() + grace_s
        while self._supervised.poll().phase == "running" and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self._supervised.kill()

    def clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
