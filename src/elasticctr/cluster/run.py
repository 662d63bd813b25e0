"""Runs a job on an engine: starts the roles, shows their states, stops them in order, summarises.

Run directory, summary and exit status are the same as for a run in one process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from elasticctr.cluster.engine import Engine, RoleSpec, RoleState
from elasticctr.cluster.feed import EventNews, EventTail, StatusFeed
from elasticctr.cluster.launch import Launch, begin, check_job, cluster_of, one_thread_per_cpu, share_threads
from elasticctr.cluster.local import LocalEngine
from elasticctr.cluster.summary import RunSummary, read_summary
from elasticctr.cluster.supervised import last_words
from elasticctr.cluster.view import JobView
from elasticctr.errors import (
    ConfigError,
    DeadlineExceeded,
    ElasticCTRError,
    FailedPrecondition,
    NotFound,
    class_of_exit,
)
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.events import read_events
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job

# How long roles that the coordinator told to end have before the engine ends them.
END_S = 10.0
# A stop waits for the checkpoint, and a table of many gigabytes takes long to write.
STOP_S = 600.0
NO_TRAINER_S = 30.0


@runtime_checkable
class Interruptible(Protocol):
    """An engine that can make roles stop with a checkpoint, for jobs without a coordinator."""

    def interrupt(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of single engines, beside the job."""

    hostfile: Path | None = None
    ray_address: str | None = None


def train_on(job: Job, engine: str, *, resume: bool, quiet: bool, options: EngineOptions) -> RunSummary:
    """Trains a job on the named engine. `quiet`: no table, no lines."""
    is_collective = cluster_of(job).strategy == "collective"
    if options.hostfile is not None and engine != "mpi":
        raise ConfigError(f"--hostfile is for --on mpi, not --on {engine}; leave it out")
    if options.ray_address is not None and engine != "ray":
        raise ConfigError(f"--ray-address is for --on ray, not --on {engine}; leave it out")
    if engine == "torchrun" or (engine == "local" and is_collective):
        return _train_on_torchrun(job, resume=resume, quiet=quiet)
    if is_collective:
        raise ConfigError(f"the strategy collective needs torchrun; use --on torchrun instead of --on {engine}")
    if engine == "local":
        launch = begin(job, resume=resume)
        launch = replace(launch, roles=share_threads(launch.job, launch.roles))
        return run_job(launch, LocalEngine(), resume=resume, quiet=quiet)
    if engine == "mpi":
        from elasticctr.cluster.mpi_run import train_on_mpi

        return train_on_mpi(job, resume=resume, quiet=quiet, hostfile=options.hostfile)
    check_job(job)
    ray = make_ray_engine(options.ray_address, cluster_of(job).host)
    launch = begin(job, resume=resume, is_one_machine=False)
    launch = replace(launch, roles=one_thread_per_cpu(launch.job, launch.roles))
    return run_job(launch, ray, resume=resume, quiet=quiet)


def _train_on_torchrun(job: Job, *, resume: bool, quiet: bool) -> RunSummary:
    from elasticctr.cluster.torchrun import TorchrunEngine

    settings = cluster_of(job)
    if settings.strategy != "collective":
        raise ConfigError(f"torchrun is only for the strategy collective, not {settings.strategy}; use --on local")
    launch = begin(job, resume=resume)
    arguments = ["trainer", "--config", str(launch.run.job), *(["--resume"] if resume else [])]
    roles = [RoleSpec("trainer", index, arguments) for index in range(settings.trainers)]
    launch = replace(launch, roles=share_threads(launch.job, roles))
    return run_job(launch, TorchrunEngine(launch.run.path / "cluster"), resume=resume, quiet=quiet)


def make_ray_engine(address: str | None, host: str) -> Engine:
    try:
        from elasticctr.cluster.ray import RayEngine
    except ImportError as e:
        raise FailedPrecondition(f"Ray is not installed ({e}); pip install 'elasticctr[ray]'") from None
    return RayEngine(address, host=host)


def run_job(launch: Launch, engine: Engine, *, resume: bool, quiet: bool = False) -> RunSummary:
    """Trains to the end, or until interrupted. All processes it started have ended when it returns or raises."""
    watch = _JobWatch(launch, engine)
    cluster = cluster_of(launch.job)
    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        events = EventNews(EventTail(launch.run.events, skip=resume))
        view = stack.enter_context(JobView(str(launch.run.path), quiet=quiet))
        feed = None
        if launch.coordinator is not None:
            feed = stack.enter_context(StatusFeed(launch.coordinator, launch.token, tls=cluster_of(launch.job).tls))
        stack.callback(engine.stop)
        engine.start(launch.roles, log_dir=str(launch.logs), max_restarts=cluster.max_restarts)

        def is_over() -> bool:
            states = engine.states()
            for event in events.read():
                view.tell_event(event)
            view.show(feed.latest if feed is not None else events.status, states)
            watch.note_states(states)
            if interrupt.is_set and not watch.is_stopping:
                view.note("stopping after a checkpoint; press Ctrl-C again to stop at once")
                watch.ask_to_stop()
            return watch.is_over(states)

        try:
            states = engine.wait(is_over)
        except KeyboardInterrupt:
            going_on = "continue from the last checkpoint with --resume" if launch.run.is_used else "nothing is kept"
            view.note(f"stopped at once; {going_on}")
            raise
        failed = [state for state in states if state.phase == "failed"]
        if not failed:
            deadline_s = time.monotonic() + END_S
            states = engine.wait(lambda: _all_ended(engine.states()) or time.monotonic() > deadline_s, 0.05)
        for event in events.read():
            view.tell_event(event)
    watch.note_states(engine.states())
    if failed:
        raise _explain(failed[0], launch)
    summary = read_summary(launch.run.path)
    if summary.is_finished and not (launch.run.path / "report.html").exists():
        from elasticctr.train.report.report import write_report

        write_report(launch.run.path)
    return summary


class _JobWatch:
    """Watches for the end of a job, and asks it to stop."""

    def __init__(self, launch: Launch, engine: Engine) -> None:
        self.is_stopping = False
        self._launch = launch
        self._engine = engine
        self._stop_by_s = 0.0
        self._trainers_gone_s: float | None = None
        self._began_at = time.time()
        self._is_ended = False
        self._noted: Sequence[RoleState] | None = None

    def is_over(self, states: Sequence[RoleState]) -> bool:
        now_s = time.monotonic()
        leading = [s for s in states if s.name.startswith("coordinator")] or list(states)
        if all(state.phase == "ended" for state in leading):
            return True
        if self.is_stopping and now_s > self._stop_by_s:
            raise DeadlineExceeded(
                f"{self._launch.run.path}: did not stop within {STOP_S:.0f} s; "
                "its processes are ended. Continue from the last checkpoint with --resume"
            )
        trainers = [state for state in states if state.name.startswith("trainer")]
        if trainers and all(state.phase == "ended" for state in trainers):
            self._trainers_gone_s = self._trainers_gone_s or now_s
            if now_s - self._trainers_gone_s > NO_TRAINER_S and not self._has_ended():
                raise FailedPrecondition(
                    f"{self._launch.run.path}: every trainer has ended but work is left; continue with --resume"
                )
        else:
            self._trainers_gone_s = None
        return False

    def _has_ended(self) -> bool:
        """Whether the run has ended and only its last version is still being published."""
        if not self._is_ended:
            try:
                ends = read_events(self._launch.run.events, "end")
            except NotFound:
                return False
            self._is_ended = bool(ends) and float(ends[-1].get("time", 0.0)) >= self._began_at
        return self._is_ended

    def ask_to_stop(self) -> None:
        """Asks for a checkpoint and an orderly end until the coordinator confirms."""
        self.is_stopping = True
        self._stop_by_s = time.monotonic() + STOP_S
        if self._launch.coordinator is None:
            if isinstance(self._engine, Interruptible):
                self._engine.interrupt()
            return
        threading.Thread(target=self._post_stop, args=(self._launch.coordinator,), daemon=True).start()

    def _post_stop(self, where: str) -> None:
        tls = cluster_of(self._launch.job).tls
        while time.monotonic() < self._stop_by_s:
            try:
                with Peer(find_coordinator(where), self._launch.token, timeout_s=STOP_S, tls=tls) as peer:
                    peer.post("/v1/stop", {})
                return
            except ElasticCTRError:
                time.sleep(0.2)

    def note_states(self, states: Sequence[RoleState]) -> None:
        """Writes the process states for `elasticctr status`, with or without a coordinator."""
        if states == self._noted:
            return
        self._noted = list(states)
        about = {"engine": self._engine.name, "roles": [asdict(state) for state in states]}
        with suppress(OSError, ElasticCTRError):
            path = self._launch.run.path / "cluster" / "roles.json"
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, json.dumps(about).encode())


def _all_ended(states: Sequence[RoleState]) -> bool:
    return all(state.phase in ("ended", "failed") for state in states)


def _explain(state: RoleState, launch: Launch) -> ElasticCTRError:
    """The error of the role that ended the job, as the same class."""
    said = last_words(state.log) if state.log and Path(state.log).exists() else ""
    marker = "elasticctr: "
    if marker in said:  # the role's own line with the reason
        said = said.rpartition(marker)[2]
    cls = class_of_exit(state.exit_status or 0)
    more = f": {said}" if said else ""
    going_on = "; continue the run with --resume" if launch.run.is_used else ""
    return cls(f"{state.name} {state.reason}{more} (log: {state.log}){going_on}")
