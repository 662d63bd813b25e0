"""`elasticctr train`, `predict`, `report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.train.metrics import print_metrics
from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.data.settings import DataSettings
from elasticctr.errors import ConfigError
from elasticctr.train.cluster_settings import Strategy

if TYPE_CHECKING:
    from elasticctr.cluster.summary import RunSummary
    from elasticctr.data.dataset import Dataset
    from elasticctr.train.job import Job
    from elasticctr.train.learner import Learner
    from elasticctr.train.result import Result

EngineName = Literal["local", "ray", "mpi", "torchrun"]
DataOption = Annotated[
    str | None, typer.Option(help="File, directory, glob or URL; default: the job's test or valid data.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, for example train.epochs=3.")
]


def train(
    job_file: Annotated[Path, typer.Argument(metavar="JOB", help="Job file (YAML).")],
    run_dir: Annotated[str | None, typer.Option(help="Where the run is written; default: run_dir of the job.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's newest checkpoint.")] = False,
    on: Annotated[
        EngineName | None,
        typer.Option("--on", help="Train with several processes, started by this; default: local for a cluster job."),
    ] = None,
    trainers: Annotated[int | None, typer.Option(help="Trainers: cluster.trainers of the job.")] = None,
    pservers: Annotated[int | None, typer.Option(help="Parameter servers: cluster.pservers of the job.")] = None,
    strategy: Annotated[
        Strategy | None, typer.Option(help="How trainers share what they learn: cluster.strategy of the job.")
    ] = None,
    hostfile: Annotated[Path | None, typer.Option(help="mpi: machines and their slots, as mpirun reads them.")] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="ray: an existing cluster; default: the one of RAY_ADDRESS, or one made here.")
    ] = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Train and evaluate a model, in one process or in many.

    Ctrl-C writes a checkpoint and says how to go on. A job with a `cluster` section, or `--on`, trains with parameter
    servers: the files, the report and the result are the same. Where the environment says `TRAINING_ROLE`, this process
    plays that role.

    Example: `elasticctr train job.yaml --set model.name=deepfm --run-dir runs/deepfm`

    Example: `elasticctr train job.yaml --on local --pservers 2 --trainers 4 --strategy async`
    """
    from elasticctr.train.job import load_job
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
        raise ConfigError(f"TRAINING_ROLE makes this process {assigned.name}; unset it to start a whole job by --on")
    result: Result | RunSummary
    if assigned is not None:
        from elasticctr.compat.paddle_cloud.assigned import run_assigned_role

        result = run_assigned_role(job, assigned, resume=resume, quiet=as_json)
    elif on is not None or job.cluster is not None:
        from elasticctr.cluster.run import EngineOptions, train_on

        options = EngineOptions(hostfile=hostfile, ray_address=ray_address)
        result = train_on(job, on or "local", resume=resume, quiet=as_json, options=options)
    elif hostfile is not None or ray_address is not None:
        raise ConfigError("--hostfile is for --on mpi and --ray-address for --on ray; without --on, one process trains")
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
            f"interrupted after step {result.step}; checkpoint written. Go on with:\n"
            f"  elasticctr train {file} --run-dir {result.run_dir} --resume{engine}",
            err=True,
        )
        raise typer.Exit(130)


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or one checkpoint in it.")],
    out: Annotated[Path, typer.Option("--out", help="File for the scores: .parquet, or text otherwise.")],
    data: Annotated[
        str | None, typer.Option(help="File, directory, glob or URL; default: the job's test or valid data.")
    ] = None,
    overrides: Overrides = None,
    as_json: JsonOption = False,
) -> None:
    """Score samples with a trained model, one score per sample and label, in the order of the data.

    Bad lines have no score; how many there were is printed.

    Example: `elasticctr predict runs/deepfm --data today.txt --out scores.parquet`
    """
    learner, dataset, job = open_run(run, data, overrides, require_label=False)
    from elasticctr.train.prediction import predict as predict_data

    rows = predict_data(learner, dataset, out, batch_size=job.train.eval_batch_size, quiet=as_json)
    bad = dataset.stats.bad
    if as_json:
        print_json({"out": str(out), "rows": rows, "bad_lines": bad})
    else:
        typer.echo(f"{rows:,} scores in {out}" + (f"; {bad:,} bad lines have none" if bad else ""))


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    as_json: JsonOption = False,
) -> None:
    """Write a run's plots and HTML report anew from its files.

    Example: `elasticctr report runs/deepfm`
    """
    from elasticctr.train.report.report import write_report

    path = write_report(run)
    if as_json:
        print_json({"report": str(path)})
    else:
        typer.echo(str(path))


def open_run(
    run: Path, data: str | None, overrides: list[str] | None, *, require_label: bool = True
) -> tuple[Learner, Dataset, Job]:
    from elasticctr.train.loading import load_learner
    from elasticctr.train.reading import open_dataset

    learner, job = load_learner(run, overrides or [])
    settings = DataSettings(path=data) if data is not None else job.data.test or job.data.valid
    if settings is None:
        raise ConfigError(f"{run}: its job names no valid or test data; say what to read with --data")
    return learner, open_dataset(settings, job.samples, require_label=require_label), job
