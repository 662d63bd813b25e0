"""Turns a job into the roles that an engine starts: names, arguments, ports, and the job's secret.

Wrong counts, ports and settings that distributed training does not support are refused here, before a process is
started or a file of the run is touched.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from elasticctr.cluster.engine import RoleSpec
from elasticctr.config.tls import PATHS
from elasticctr.errors import ConfigError, FailedPrecondition, InternalError, NotFound, Unavailable
from elasticctr.net.access import make_token, read_token, write_token
from elasticctr.ps.addresses import FILE as COORDINATOR_FILE
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job
from elasticctr.train.run_directory import RunDirectory

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# More roles than anyone needs on one machine, so that a typing error does not overwhelm it.
MOST_LOCAL_ROLES = 256
_QUIET_PORTS = range(10_000, 32_768)


@dataclass(frozen=True, slots=True)
class Launch:
    """A job that is ready to start."""

    job: Job
    run: RunDirectory
    roles: Sequence[RoleSpec]
    coordinator: str | None  # its URL, or the run directory that will contain it; None for collective
    token: str | None
    lock: IO[str] | None = None  # held as long as this launch, so that no other process starts the same run

    @property
    def logs(self) -> Path:
        return self.run.path / "logs"


def cluster_of(job: Job) -> ClusterSettings:
    """The job's cluster section, or the defaults for a job without one that is started with --on."""
    return job.cluster if job.cluster is not None else ClusterSettings()


def check_job(job: Job) -> None:
    """Refuses jobs that cannot be trained with several processes."""
    if job.publish is not None and cluster_of(job).strategy == "collective":
        raise ConfigError(
            "publish: a collective run cannot publish while it trains; "
            "remove the section and run `elasticctr publish RUN` afterwards"
        )


def check_local(settings: ClusterSettings) -> None:
    """Refuses more roles than one machine should run."""
    count = count_roles(settings)
    if count > MOST_LOCAL_ROLES:
        raise ConfigError(
            f"{settings.trainers} trainers and {settings.pservers} pservers are {count} processes on one machine, "
            f"more than {MOST_LOCAL_ROLES}; lower cluster.trainers or cluster.pservers, or use several machines"
        )


def count_roles(settings: ClusterSettings) -> int:
    if settings.strategy == "collective":
        return settings.trainers
    return 1 + settings.trainers + settings.pservers * (2 if settings.standby else 1)


def begin(job: Job, *, resume: bool, is_one_machine: bool = True, coordinator_port: int | None = None) -> Launch:
    """Claims the run directory and plans the roles. `coordinator_port`: None for any free one."""
    check_job(job)
    settings = cluster_of(job)
    if is_one_machine:
        check_local(settings)
    if settings.token_file is not None:
        read_token(Path(settings.token_file))
    run = RunDirectory(Path(job.run_dir).absolute())
    if resume and not run.is_used:
        raise NotFound(f"{run.path}: has no checkpoint to resume from; omit --resume to start a new run")
    url: str | None = None
    if settings.strategy != "collective" and is_one_machine:
        port = find_free_port(settings.host) if coordinator_port is None else coordinator_port
        check_port(settings.host, port)
        scheme = "http" if settings.tls is None else "https"
        url = f"{scheme}://{'127.0.0.1' if settings.host == '0.0.0.0' else settings.host}:{port}"
    settings = with_whole_paths(settings)
    job = job.model_copy(update={"cluster": settings, "run_dir": str(run.path)})
    lock = claim(run)
    run.begin(job, resume=resume)
    # From an earlier start of this run: another process may now have its address.
    (run.path / COORDINATOR_FILE).unlink(missing_ok=True)
    token_file = Path(settings.token_file).absolute() if settings.token_file else make_run_token(run.path)
    where = url or str(run.path)
    roles = [] if settings.strategy == "collective" else make_roles(settings, run, where, token_file, resume=resume)
    where_now = None if settings.strategy == "collective" else where
    return Launch(job, run, roles, where_now, read_token(token_file), lock)


def with_whole_paths(settings: ClusterSettings) -> ClusterSettings:
    """The same settings with absolute paths of certificates, for roles in any working directory."""
    if settings.tls is None:
        return settings
    found = {name: getattr(settings.tls, name) for name in PATHS}
    whole = {name: path.absolute() for name, path in found.items() if path is not None}
    return settings.model_copy(update={"tls": settings.tls.model_copy(update=whole)})


def claim(run: RunDirectory) -> IO[str]:
    """Locks a run directory. FailedPrecondition while another process trains in it."""
    path = run.path / "cluster" / "lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="utf-8")
    except OSError as e:
        raise InternalError(f"{path}: cannot be written: {e.strerror or e}") from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read(100).strip() or "another process"
        lock.close()
        raise FailedPrecondition(f"{run.path}: {holder} is training this run; wait until it ends, or stop it") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} of {socket.gethostname()}\n")
    lock.flush()
    return lock


def make_roles(
    settings: ClusterSettings, run: RunDirectory, where: str, token_file: Path, *, resume: bool
) -> list[RoleSpec]:
    """The coordinator first, then pservers, standbys and trainers. `where` is the coordinator's URL, or the run
    directory if the coordinator chooses a port and writes it there."""
    port = where.rpartition(":")[2] if where.startswith("http") else "0"
    shared = ["--config", str(run.job), "--token-file", str(token_file)]
    finding = ["--coordinator", where]
    listening = ["--host", settings.host]
    going_on = ["--resume"] if resume else []
    roles = [RoleSpec("coordinator", 0, ["coordinator", *shared, *listening, "--port", port, *going_on], cpus=0.5)]
    for index in range(settings.pservers):
        named = ["--name", f"pserver-{index}", "--shard", str(index)]
        roles.append(RoleSpec("pserver", index, ["pserver", *shared, *finding, *named, *listening, "--port", "0"]))
    for index in range(settings.pservers if settings.standby else 0):
        named = ["--name", f"standby-{index}", "--shard", str(index), "--standby"]
        roles.append(RoleSpec("standby", index, ["pserver", *shared, *finding, *named, *listening, "--port", "0"]))
    roles += [make_trainer(index, shared, finding) for index in range(settings.trainers)]
    return roles


def make_trainer(index: int, shared: Sequence[str], finding: Sequence[str]) -> RoleSpec:
    return RoleSpec("trainer", index, ["trainer", *shared, *finding, "--name", f"trainer-{index}"])


def share_threads(job: Job, roles: Sequence[RoleSpec]) -> list[RoleSpec]:
    """The same roles; trainers on one machine get an even share of its CPUs unless the job sets their threads."""
    trainers = sum(role.kind == "trainer" for role in roles)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = job.train.threads or max(1, usable // max(trainers, 1))
    return [_with_threads(role, threads) if role.kind == "trainer" else role for role in roles]


def one_thread_per_cpu(job: Job, roles: Sequence[RoleSpec]) -> list[RoleSpec]:
    """The same roles for a cluster that assigns CPUs: a trainer requests as many as it has threads."""
    threads = job.train.threads or 1
    return [
        replace(_with_threads(role, threads), cpus=float(threads)) if role.kind == "trainer" else role for role in roles
    ]


def _with_threads(role: RoleSpec, threads: int) -> RoleSpec:
    return replace(role, environment={**role.environment, "ELASTICCTR__TRAIN__THREADS": str(threads)})


def find_free_port(host: str) -> int:
    """A port for a role that is about to start. Below the range for outgoing connections, which could take it in the
    meantime."""
    for port in random.SystemRandom().sample(_QUIET_PORTS, 20):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as e:
            raise ConfigError(f"cluster.host: cannot listen at {host!r}: {e.strerror or e}") from None
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Refuses a port that is taken. If it is taken before the start, the role itself reports it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OverflowError:
            raise ConfigError(f"port {port} is out of range: ports go from 1 to 65535") from None
        except OSError as e:
            raise Unavailable(f"cannot listen at {host}:{port}: {e.strerror or e}; choose another port") from None


def run_token(run: Path) -> Path:
    return run / "cluster" / "token"


def make_run_token(run: Path) -> Path:
    """Makes a secret for this run, readable only by its owner, so that other users of the machine cannot interfere."""
    path = run_token(run)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InternalError(f"{path}: cannot be written: {e.strerror or e}") from e
    if not path.exists():
        write_token(path, make_token())
    return path
