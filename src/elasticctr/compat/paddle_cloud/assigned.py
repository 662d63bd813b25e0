"""Runs the role that the environment assigns to this process (environment.py).

A trainer or pserver becomes the role's process. The first pserver supervises two: the coordinator and itself. The
platform that started this process restarts it; an unfinished run then resumes by itself.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import yaml

from elasticctr.cluster.engine import RoleSpec
from elasticctr.cluster.launch import (
    LOOPBACK,
    Launch,
    check_job,
    check_port,
    claim,
    cluster_of,
    make_run_token,
    run_token,
)
from elasticctr.cluster.local import LocalEngine
from elasticctr.cluster.run import run_job
from elasticctr.cluster.summary import RunSummary
from elasticctr.cluster.supervised import ELASTICCTR
from elasticctr.compat.paddle_cloud.environment import Assigned, split_endpoint
from elasticctr.errors import ConfigError, InternalError
from elasticctr.net.access import read_optional_token, read_token
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.job import Job
from elasticctr.train.run_directory import RunDirectory

_POLL_S = 0.2


def fit_job(job: Job, assigned: Assigned) -> Job:
    """The job with the environment's counts. Refuses a cluster section with other counts."""
    settings = cluster_of(job)
    given = {"trainers": assigned.trainers, "pservers": len(assigned.pservers) or settings.pservers}
    if job.cluster is not None:
        for key, value in given.items():
            if key in job.cluster.model_fields_set and getattr(job.cluster, key) != value:
                raise ConfigError(
                    f"cluster.{key} of the job is {getattr(job.cluster, key)}, but the environment says {value}; "
                    "remove it from the job"
                )
    if settings.strategy == "collective" and assigned.role == "pserver":
        raise ConfigError("the strategy collective has no pservers, but TRAINING_ROLE is PSERVER")
    if settings.strategy != "collective" and not assigned.pservers:
        raise ConfigError("PADDLE_PSERVERS_IP_PORT_LIST lists no pserver; only the strategy collective works without")
    if settings.standby:
        raise ConfigError("cluster.standby: the environment cannot describe standbys; remove the setting, or use --on")
    check_job(job)
    return job.model_copy(update={"cluster": settings.model_copy(update=given)})


def run_assigned_role(job: Job, assigned: Assigned, *, resume: bool, quiet: bool) -> RunSummary:
    """Becomes the role and does not return; the first pserver returns when the run has ended."""
    job = fit_job(job, assigned)
    if cluster_of(job).tls is not None and assigned.coordinator.startswith("http://"):
        assigned = replace(assigned, coordinator="https://" + assigned.coordinator.removeprefix("http://"))
    if not assigned.leads:
        _exec_role(job, assigned, resume=resume)
    launch = _launch_with_coordinator(job, assigned, resume=resume)
    return run_job(launch, LocalEngine(), resume="--resume" in launch.roles[0].arguments, quiet=quiet)


def _launch_with_coordinator(job: Job, assigned: Assigned, *, resume: bool) -> Launch:
    host, port = assigned.endpoint
    if not assigned.coordinator.startswith("http"):
        raise ConfigError("ELASTICCTR_COORDINATOR must be host:port, where the first pserver starts the coordinator")
    address = split_endpoint(assigned.coordinator.partition("//")[2].rstrip("/"), "ELASTICCTR_COORDINATOR")
    listening = _listening_host(job, host)
    for taken in (port, address[1]):
        check_port(listening, taken)
    run = RunDirectory(Path(job.run_dir).absolute())
    job = job.model_copy(update={"run_dir": str(run.path)})
    # The pod was restarted: the same command with the same files resumes the run.
    going_on = resume or (run.is_used and not _is_finished(run))
    lock = claim(run)
    run.begin(job, resume=going_on)
    token_file = find_token(job, run.path, makes=True)
    shared = ["--config", str(run.job), *_access_flags(token_file)]
    coordinator = ["coordinator", *shared, "--host", listening, "--port", str(address[1])]
    environment = {"ELASTICCTR_ADVERTISE": host}
    roles = [
        RoleSpec("coordinator", 0, [*coordinator, *(["--resume"] if going_on else [])], environment),
        RoleSpec("pserver", 0, ["pserver", *shared, *_pserver_flags(job, assigned)], environment),
    ]
    return Launch(job, run, roles, assigned.coordinator, read_optional_token(token_file), lock)


def _exec_role(job: Job, assigned: Assigned, *, resume: bool) -> NoReturn:
    run = Path(job.run_dir).absolute()
    path = run / "cluster" / f"{assigned.name}.yaml"
    job = job.model_copy(update={"run_dir": str(run)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InternalError(f"{path}: cannot be written: {e.strerror or e}") from e
    write_atomic(path, yaml.safe_dump(job.model_dump(mode="json", by_alias=True), sort_keys=False).encode())
    environment = dict(os.environ)
    is_collective = cluster_of(job).strategy == "collective"
    token_file = _given_token(job) if is_collective else find_token(job, run, makes=False)
    shared = ["--config", str(path), *(["--token-file", str(token_file)] if token_file else [])]
    if assigned.role == "pserver":
        arguments = ["pserver", "--config", str(path), *_access_flags(token_file), *_pserver_flags(job, assigned)]
        environment["ELASTICCTR_ADVERTISE"] = assigned.endpoint[0]
    else:
        arguments = ["trainer", *shared, "--name", assigned.name]
        if assigned.threads is not None and job.train.threads is None:
            environment["ELASTICCTR__TRAIN__THREADS"] = str(assigned.threads)
        if is_collective:
            environment |= _rank_variables(assigned)
            arguments += ["--resume"] if resume else []
        else:
            arguments += ["--coordinator", assigned.coordinator]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(ELASTICCTR[0], [*ELASTICCTR, *arguments], environment)


def _rank_variables(assigned: Assigned) -> dict[str, str]:
    """The variables that torchrun would set, for trainers that form a group without it."""
    if not assigned.trainer_endpoints:
        raise ConfigError("the strategy collective needs PADDLE_TRAINER_ENDPOINTS: trainers meet at the first endpoint")
    host, port = split_endpoint(assigned.trainer_endpoints[0], "PADDLE_TRAINER_ENDPOINTS")
    return {
        "RANK": str(assigned.index),
        "WORLD_SIZE": str(assigned.trainers),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }


def _pserver_flags(job: Job, assigned: Assigned) -> list[str]:
    host, port = assigned.endpoint
    flags = ["--coordinator", assigned.coordinator, "--name", assigned.name, "--shard", str(assigned.index)]
    return [*flags, "--host", _listening_host(job, host), "--port", str(port)]


def _listening_host(job: Job, host: str) -> str:
    """The announced address may belong to a service in front of this machine; then listen at every address."""
    settings = cluster_of(job)
    if "host" in settings.model_fields_set:
        return settings.host
    return host if host in LOOPBACK or host.startswith("127.") else "0.0.0.0"


def _access_flags(token_file: Path | None) -> list[str]:
    return ["--insecure"] if token_file is None else ["--token-file", str(token_file)]


def find_token(job: Job, run: Path, *, makes: bool) -> Path | None:
    """The file with the job's secret. By default it is in the run directory: the role that `makes` it writes it there,
    the others wait for it. None if the job has no secret."""
    given = _given_token(job)
    if given is not None:
        read_token(given)
        return given
    if cluster_of(job).insecure or os.environ.get("ELASTICCTR_INSECURE", "").lower() in ("1", "true", "yes"):
        return None
    path = make_run_token(run) if makes else run_token(run)
    deadline_s = time.monotonic() + cluster_of(job).coordinator_wait_s
    while not (path.exists() and path.stat().st_size > 0):
        if time.monotonic() > deadline_s:
            raise ConfigError(
                f"{path}: the first pserver wrote no secret there; if the run directory is not shared, make one "
                "with `elasticctr token FILE`, copy it to all machines and set ELASTICCTR_TOKEN_FILE; "
                "or set ELASTICCTR_INSECURE=1 on all of them to run without"
            )
        time.sleep(_POLL_S)
    read_token(path)
    return path


def _given_token(job: Job) -> Path | None:
    given = os.environ.get("ELASTICCTR_TOKEN_FILE") or cluster_of(job).token_file
    return Path(given).absolute() if given else None


def _is_finished(run: RunDirectory) -> bool:
    return run.metrics.exists() and (run.path / "report.html").exists()
