"""The Ray engine: one actor per role, placed by a placement group, restarted by Ray when a node or worker is lost.

Works on an existing cluster by its address, or on one that it starts on this machine. All nodes must share the run
directory, as for checkpoints; logs come through Ray. Used from one thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# Set before Ray is imported, which would otherwise ask to report usage over the network.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from elasticctr.cluster.engine import RoleSpec, RoleState
from elasticctr.cluster.launch import LOOPBACK
from elasticctr.cluster.local import GRACE_S, check_names
from elasticctr.cluster.ray_role import News, RoleActor
from elasticctr.cluster.supervised import prepare_log
from elasticctr.errors import AlreadyExists, ConfigError, DeadlineExceeded, NotFound, Unavailable

PLACE_S = 120.0
POLL_S = 0.3


class RayEngine:
    """`address` is that of an existing cluster; the default is RAY_ADDRESS, or else a new cluster on this machine."""

    name = "ray"

    def __init__(
        self, address: str | None = None, *, host: str = "127.0.0.1", command: Sequence[str] | None = None
    ) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._host = host
        self._command = command
        self._roles: dict[str, _Placed] = {}
        self._groups: list[Any] = []
        self._log_dir = "logs"
        self._max_restarts = 0
        self._is_connected = False

    def start(self, roles: Sequence[RoleSpec], *, log_dir: str, max_restarts: int) -> None:
        check_names(roles)
        self._log_dir, self._max_restarts = log_dir, max_restarts
        wanted = sum(role.cpus for role in roles)
        self._connect(wanted)
        try:
            self._check_fits(wanted)
            self._place(roles)
        except BaseException:
            self.stop(0)
            raise

    def states(self) -> list[RoleState]:
        return [placed.state for placed in self._roles.values()]

    def add(self, role: RoleSpec) -> None:
        if role.name in self._roles:
            raise AlreadyExists(f"a role {role.name} is already running")
        self._check_fits(role.cpus, available=True)
        self._place([role])

    def remove(self, name: str) -> None:
        placed = self._roles.get(name)
        if placed is None:
            raise NotFound(f"no role {name} is running here; running are {', '.join(self._roles)}")
        _end([placed], GRACE_S)

    def wait(self, is_over: Callable[[], bool], poll_s: float = 0.2) -> list[RoleState]:
        while True:
            for placed in self._roles.values():
                placed.look()
            states = self.states()
            if any(state.phase == "failed" for state in states) or is_over():
                return states
            time.sleep(poll_s)

    def stop(self, grace_s: float = GRACE_S) -> None:
        if not self._is_connected:
            return
        _end(list(self._roles.values()), grace_s)
        for group in self._groups:
            with contextlib.suppress(RayError, ValueError):
                remove_placement_group(group)
        self._groups.clear()
        ray.shutdown()
        self._is_connected = False

    def _connect(self, wanted: float) -> None:
        if ray.is_initialized():
            raise AlreadyExists("this process is already connected to a Ray cluster")
        options: dict[str, Any] = {"address": self._address or "local"}
        if self._address is not None:
            _check_reachable(self._address)
        else:
            # Roles share the available CPUs; Ray must not refuse more roles than cores.
            cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            options |= {"num_cpus": max(cpus, int(wanted) + 1), "include_dashboard": False}
        is_main = threading.current_thread() is threading.main_thread()
        on_end = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(**options, logging_level=logging.ERROR, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RayError, RuntimeError, ValueError) as e:
            where = self._address or "on this machine"
            raise Unavailable(f"no Ray cluster at {where}: {_first_line(e)}; see `ray status` there") from None
        finally:
            if is_main and on_end is not None:
                signal.signal(signal.SIGTERM, on_end)  # Ray replaces the handler, but a clean stop needs ours
        self._is_connected = True

    def _check_fits(self, wanted: float, *, available: bool = False) -> None:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        addresses = {node["NodeManagerAddress"] for node in nodes}
        if len(addresses) > 1 and self._host in LOOPBACK:
            raise ConfigError(
                f"the Ray cluster has {len(addresses)} machines, but roles would listen at {self._host}, "
                "where others cannot reach them; set cluster.host to 0.0.0.0"
            )
        there = (ray.available_resources() if available else ray.cluster_resources()).get("CPU", 0.0)
        if wanted > there:
            raise ConfigError(
                f"the roles need {wanted:g} CPUs, but the Ray cluster has {there:g}; start fewer roles or add nodes"
            )

    def _place(self, roles: Sequence[RoleSpec]) -> None:
        bundles = [_resources(role) for role in roles]
        group = placement_group(bundles, strategy="SPREAD")
        self._groups.append(group)
        if not group.wait(PLACE_S):
            raise DeadlineExceeded(
                f"the Ray cluster found no place for {len(roles)} roles within {PLACE_S:.0f} s; "
                "other jobs may hold its CPUs, see `ray status`"
            )
        for index, role in enumerate(roles):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            actor = ray.remote(RoleActor).options(
                scheduling_strategy=strategy, num_cpus=role.cpus, max_restarts=self._max_restarts, max_task_retries=0
            )
            log = prepare_log(self._log_dir, role.name)
            remote = actor.remote(role, self._max_restarts, self._command)
            self._roles[role.name] = _Placed(role, remote, log, self._max_restarts)


class _Placed:
    """One role as seen from this side. Polling never blocks: an answer is read when it has arrived."""

    def __init__(self, role: RoleSpec, actor: Any, log: Path, max_restarts: int) -> None:
        self.actor = actor
        self.state = RoleState(role.name, "starting", log=str(log))
        self._log = log
        self._max_restarts = max_restarts
        self._pending: Any = None
        self._asked_s = 0.0
        self._incarnation, self._offset = "", 0
        self._restarts = 0  # of the process, in this incarnation of the actor
        self._restarts_before = 0  # in earlier incarnations, and of the actor itself
        self._is_lost = False

    @property
    def is_over(self) -> bool:
        return self.state.phase in ("ended", "failed")

    def look(self, timeout_s: float = 0.0) -> None:
        """Reads an answer that has arrived and polls again."""
        if self.is_over:
            return
        if self._pending is None:
            if time.monotonic() - self._asked_s < POLL_S and timeout_s == 0:
                return
            self._asked_s = time.monotonic()
            self._pending = self.actor.poll.remote(self._incarnation, self._offset)
        ready, _ = ray.wait([self._pending], timeout=timeout_s)
        if not ready:
            return
        pending, self._pending = self._pending, None
        try:
            self._take(ray.get(pending))
        except ActorDiedError as e:
            reason = f"was lost with its node or worker, and Ray could not restart it: {_first_line(e)}"
            self.state = replace(self.state, phase="failed", pid=None, reason=reason)
        except RayActorError:
            self._see_loss()
        except RayError as e:
            self.state = replace(self.state, reason=f"does not answer: {_first_line(e)}")

    def _take(self, news: News) -> None:
        if news.incarnation != self._incarnation:
            if self._incarnation:
                self._see_loss()
                self._restarts_before += self._restarts + 1
            self._incarnation = news.incarnation
        self._restarts = news.state.restarts
        self._is_lost = False
        self._offset = news.offset
        if news.printed:
            with contextlib.suppress(OSError), self._log.open("ab") as log:
                log.write(news.printed)
        total = self._restarts_before + self._restarts
        phase, reason = news.state.phase, news.state.reason or self.state.reason
        if phase in ("ended", "failed") and not news.is_all:
            phase = "running"  # first fetch the rest of its output
        elif phase == "running" and total > self._max_restarts:
            phase, reason = "failed", f"{reason}, after {self._max_restarts} restarts"
        self.state = replace(news.state, phase=phase, restarts=total, reason=reason, log=str(self._log))

    def _see_loss(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        reason = "was lost with its node or worker"
        self.state = replace(self.state, phase="restarting", pid=None, reason=reason)


def _end(roles: Sequence[_Placed], grace_s: float) -> None:
    """Ends the processes, fetches their last output, then ends their actors."""
    calls = []
    for placed in roles:
        if not placed.is_over:
            with contextlib.suppress(RayError):
                calls.append(placed.actor.end.remote(grace_s))
    if calls:
        ray.wait(calls, num_returns=len(calls), timeout=grace_s + 5)
    for placed in roles:
        deadline_s = time.monotonic() + 2.0
        while not placed.is_over and time.monotonic() < deadline_s:
            placed.look(timeout_s=0.5)
        with contextlib.suppress(RayError):
            ray.wait([placed.actor.clear.remote()], timeout=0.5)
            ray.kill(placed.actor)
        if not placed.is_over:
            placed.state = replace(placed.state, phase="ended", pid=None)


def _check_reachable(address: str) -> None:
    """Checks the address first: Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if "://" in address:
        raise ConfigError(f"{address!r}: give the host:port of the cluster, not of a Ray client server")
    if not colon or not port.isdigit():
        if address != "auto":
            raise ConfigError(f"{address!r} must be the host:port of a Ray cluster, or 'auto'")
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as e:
        raise Unavailable(f"no Ray cluster at {address}: {e}; see `ray status` there") from None


def _resources(role: RoleSpec) -> dict[str, float]:
    wanted = {"CPU": float(role.cpus)}
    if role.memory_mib:
        wanted["memory"] = float(role.memory_mib << 20)
    return wanted


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
