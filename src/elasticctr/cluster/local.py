"""The local engine: every role is a supervised process on this machine. Used from one thread (see supervised.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.supervised import ELASTICCTR, Supervised, prepare_log
from elasticctr.errors import AlreadyExists, ConfigError, NotFound

GRACE_S = 10.0


class LocalEngine:
    """`command` is the program that gets a role's arguments."""

    name = "local"

    def __init__(self, command: Sequence[str] = ELASTICCTR) -> None:
        self._command = command
        self._roles: dict[str, Supervised] = {}
        self._log_dir = "logs"
        self._max_restarts = 0

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        check_names(roles)
        _check_memory(roles)
        self._log_dir, self._max_restarts = log_dir, max_restarts
        logs = {role.name: prepare_log(log_dir, role.name) for role in roles}
        for role in roles:
            self._roles[role.name] = Supervised(
                role, log=logs[role.name], max_restarts=max_restarts, command=self._command
            )
        try:
            for one in self._roles.values():
                one.start()
        except BaseException:
            self.stop(0)
            raise

    def states(self) -> list[RoleState]:
        return [one.state() for one in self._roles.values()]

    def add(self, role: RoleSpec) -> None:
        if role.name in self._roles:
            raise AlreadyExists(f"a role {role.name} is already running")
        log = prepare_log(self._log_dir, role.name)
        one = Supervised(role, log=log, max_restarts=self._max_restarts, command=self._command)
        one.start()
        self._roles[role.name] = one

    def remove(self, name: str) -> None:
        one = self._roles.get(name)
        if one is None:
            raise NotFound(f"no role {name} is running here; running are {', '.join(self._roles)}")
        _end([one], GRACE_S)

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        while True:
            states = [one.poll() for one in self._roles.values()]
            if any(state.phase == "failed" for state in states) or is_over():
                return states
            time.sleep(poll_s)

    def stop(self, grace_s: float = GRACE_S) -> None:
        _end(list(self._roles.values()), grace_s)


def _end(roles: Sequence[Supervised], grace_s: float) -> None:
    for one in roles:
        one.ask_to_end()
    deadline_s = time.monotonic() + grace_s
    while time.monotonic() < deadline_s and any(one.poll().phase == "running" for one in roles):
        time.sleep(0.02)
    for one in roles:
        if one.poll().phase == "running":
            one.kill()


def check_names(roles: Sequence[RoleSpec]) -> None:
    names = [role.name for role in roles]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two roles are named {twice[0]}; rename one")


def _check_memory(roles: Sequence[RoleSpec]) -> None:
    wanted = sum(role.memory_mib or 0 for role in roles)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    if wanted > there:
        raise ConfigError(f"the roles need {wanted:,} MiB of memory, but this machine has {there:,}; use more machines")
