"""`elasticctr train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elasticctr.cli.options.runs import Overrides
from elasticctr.cli.options.settings import setting
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.metrics import print_metrics
from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.errors import ConfigError
from elasticctr.train.cluster_settings import ClusterSettings, Strategy
from elasticctr.train.job import Job, load_job

if TYPE_CHECKING:
    from elasticctr.cluster.summary import RunSummary
    from elasticctr.train.result import Result

EngineName = Literal["local", "ray", "mpi", "torchrun"]


def train(
    job_file: Annotated[Path, typer.Argument(metavar="JOB_FILE", help="Job file (YAML).")],
    run_dir: Annotated[str | None, setting(Job, "run_dir")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the run's newest checkpoint.")] = False,
    on: Annotated[
        EngineName | None,
        typer.Option(
            "--on", help="Start several processes this way; default: local if the job has a `cluster` section."
        ),
    ] = None,
    trainers: Annotated[int | None, setting(ClusterSettings, "trainers")] = None,
    pservers: Annotated[int | None, setting(ClusterSettings, "pservers")] = None,
    strategy: Annotated[Strategy | None, setting(ClusterSettings, "strategy")] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="For --on mpi: machines and slots, as mpirun reads them.")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(help="For --on ray: an existing cluster; default: RAY_ADDRESS, else a cluster started here."),
    ] = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Train and evaluate a model, in one process or many.

    Ctrl-C writes a checkpoint and prints the command that resumes the run. With `--on`, or if the job has a `cluster`
    section, several processes train; the run directory is the same. If the environment variable `TRAINING_ROLE` is
    set, this process takes that one role.

    Example: `elasticctr train job.yaml --set model.name=deepfm --run-dir runs/deepfm`

    Example: `elasticctr train job.yaml --on local --pservers 2 --trainers 4 --strategy async`
    """
    from elasticctr.train.metrics.label_metrics import values_of

    changes = list(overrides or [])
    for key, value in (
        ("run_dir", run_dir),
        ("cluster.trainers", trainers),
        ("cluster.pservers", pservers),
        ("cluster.strategy", strategy),
    ):
        if value is not None:
            changes.append(f"{key}={value}")
    job = load_job(job_file, changes)
    assigned = read_environment(os.environ)
    if assigned is not None and on is not None:
        raise ConfigError(f"TRAINING_ROLE makes this process {assigned.name}; unset it to start a whole job with --on")
    result: Result | RunSummary
    if assigned is not None:
        from elasticctr.compat.paddle_cloud.assigned import run_assigned_role

        result = run_assigned_role(job, assigned, resume=resume, quiet=as_json)
    elif on is not None or job.cluster is not None:
        from elasticctr.cluster.run import EngineOptions, train_on

        options = EngineOptions(hostfile=hostfile, ray_address=ray_address)
        result = train_on(job, on or "local", resume=resume, quiet=as_json, options=options)
    elif hostfile is not None or ray_address is not None:
        raise ConfigError("--hostfile needs --on mpi, and --ray-address needs --on ray")
    else:
        from elasticctr.run import train as run_job

        result = run_job(job, resume=resume, quiet=as_json)
    summary: dict[str, Any] = {
        "run_dir": str(result.run_dir),
        "finished": result.is_finished,
        "stopped_early": result.stopped_early,
        "steps": result.step,
        "samples": result.samples,
        "seconds": round(result.seconds, 3),
        "samples_per_s": round(result.samples_per_s, 1),
        "metrics": {split: values_of(metrics) for split, metrics in result.metrics.items()},
    }
    if as_json:
        print_json(summary)
    else:
        print_metrics(summary["metrics"])
        speed = f"{result.samples:,} samples in {result.seconds:.1f} s ({result.samples_per_s:,.0f} samples/s)"
        typer.echo(f"{speed}\nreport: {result.run_dir / 'report.html'}" if result.is_finished else speed)
    if not result.is_finished:
        engine = f" --on {on}" if on is not None else ""
        file = result.run_dir / "job.yaml" if job.cluster is not None or on is not None else job_file
        typer.echo(
            f"interrupted after step {result.step}; checkpoint written. Resume with:\n"
            f"  elasticctr train {file} --run-dir {result.run_dir} --resume{engine}",
            err=True,
        )
        raise typer.Exit(130)
