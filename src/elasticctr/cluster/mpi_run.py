"""Runs a job on MPI: by starting mpirun, or as the ranks of an existing mpirun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from elasticctr.cluster.launch import begin, check_job, cluster_of
from elasticctr.cluster.mpi import MpiEngine, check_hosts, check_slots, find_mpirun, read_hostfile
from elasticctr.cluster.ranks import rank_of, read_plan, supervise_rank
from elasticctr.cluster.run import run_job
from elasticctr.cluster.summary import RunSummary
from elasticctr.errors import ConfigError
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job


def train_on_mpi(job: Job, *, resume: bool, quiet: bool, hostfile: Path | None) -> RunSummary:
    check_job(job)
    settings = cluster_of(job)
    place = rank_of(os.environ)
    directory = Path(job.run_dir).absolute() / "cluster"
    if place is None:
        find_mpirun()
        if hostfile is not None:
            hostfile = hostfile.absolute()
            check_slots(hostfile, settings.trainers + count_serving(settings))
            check_hosts([host for host, _ in read_hostfile(hostfile)], settings)
        launch = begin(job, resume=resume, is_one_machine=False)
        return run_job(launch, MpiEngine(directory, hostfile=hostfile), resume=resume, quiet=quiet)
    if hostfile is not None:
        raise ConfigError("this process was started by mpirun; give the hostfile to mpirun")
    rank, size, local_size = place
    is_given = job.cluster is not None and "trainers" in job.cluster.model_fields_set
    settings = fit_ranks(settings, size, is_trainers_given=is_given)
    if local_size < size:
        check_hosts(["other machines"], settings)
    if rank > 0:
        _follow(directory, rank, size)
    launch = begin(job.model_copy(update={"cluster": settings}), resume=resume, is_one_machine=False)
    engine = MpiEngine(directory, is_rank=True, launch_name=name_of_mpirun())
    return run_job(launch, engine, resume=resume, quiet=quiet)


def count_serving(settings: ClusterSettings) -> int:
    """The number of ranks that hold parameters. The coordinator shares the first one."""
    return settings.pservers * (2 if settings.standby else 1)


def fit_ranks(settings: ClusterSettings, size: int, *, is_trainers_given: bool) -> ClusterSettings:
    """The settings for an existing mpirun of `size` ranks: those that are not pservers become trainers."""
    serving = count_serving(settings)
    trainers = size - serving
    if trainers < 1:
        raise ConfigError(f"mpirun started {size} ranks, and {serving} pservers leave none for a trainer; start more")
    if is_trainers_given and settings.trainers != trainers:
        raise ConfigError(
            f"{settings.trainers} trainers and {serving} ranks of pservers need {settings.trainers + serving} ranks, "
            f"but mpirun started {size}"
        )
    return settings.model_copy(update={"trainers": trainers})


def _follow(directory: Path, rank: int, size: int) -> NoReturn:
    """Runs a rank other than 0 of an existing mpirun. Rank 0 tells it which roles to run."""
    plan = read_plan(directory, name_of_mpirun())
    if size != len(plan.ranks):
        raise ConfigError(f"mpirun started {size} ranks, but the job needs {len(plan.ranks)}")
    supervise_rank(directory, plan, rank)
    sys.exit(0)


def name_of_mpirun() -> str:
    """A name common to the ranks of one mpirun and different for every other."""
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_URI2"):
        if os.environ.get(name):
            return os.environ[name]
    raise ConfigError("mpirun sets neither PMIX_NAMESPACE nor a job number; use Open MPI 4 or 5")
