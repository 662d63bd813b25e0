"""The zoo's models here, in FuxiCTR and in DeepCTR-Torch: the same files, seeds, sizes and recipe, one thread each.

AUC of the best epoch on validation, mean ± sd over seeds, and CPU and wall seconds per epoch. Jobs are
examples/zoo/NAME.yaml, data is Frappe as in quality.py. Peers have their own virtual environments under .bench, created
on first use. Runs are kept in .bench/quality_peers and not repeated while their job and code are the same; --again
discards them. Training to the end takes hours on a few cores: use --device cuda to train all stacks on a GPU and
--epochs 3 to measure speed here, both with --save, and quality_peers_report.py to combine the files."""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

import measure
import quality
import quality_sets
from contenders import environments
from quality_peers_report import Run, report

WORK = measure.WORK / "quality_peers"
SCRIPTS = measure.ROOT / "benchmarks" / "contenders"
DEEPCTR = ["lr", "fm", "dnn", "wide_deep", "deepfm", "dcn", "dcnv2", "xdeepfm", "autoint", "fibinet"]
MODELS = {"ours": [*DEEPCTR, "masknet", "finalmlp"], "fuxictr": [*DEEPCTR, "masknet", "finalmlp"], "deepctr": DEEPCTR}
QUICK = ["dnn", "deepfm", "dcnv2"]
QUICK_EPOCHS = 3


class TrainingFailedError(Exception):
    """A run failed; the message has the end of its output."""


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, three models, three epochs")
    parser.add_argument("--models", help="comma-separated; default: all that any peer has")
    parser.add_argument("--stacks", default=",".join(MODELS), help="comma-separated; default: %(default)s")
    parser.add_argument("--seeds", type=int, help="runs of each; default 5, quick 1")
    parser.add_argument("--first-seed", type=int, default=0, help="for splitting a benchmark by seeds; default 0")
    parser.add_argument("--epochs", type=int, help="most epochs; 3 suffice for speed, not for AUC; default: the job's")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="speed is reported for cpu only")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time, one thread each; default 1")
    parser.add_argument("--peers", type=Path, help="folder of the peers' packages, for machines without internet")
    parser.add_argument("--data", type=Path, default=measure.ROOT.parent / "shared" / "data")
    parser.add_argument("--save", type=Path, help="append every run to this file, for quality_peers_report.py")
    parser.add_argument("--again", action="store_true", help="forget runs that are kept")
    parser.add_argument("--kept", action="store_true", help="report what is kept and run nothing")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.again:
        shutil.rmtree(WORK / "results", ignore_errors=True)
    made = quality_sets.make_frappe(options.data)
    if not made:
        raise SystemExit(
            f"{' and '.join(quality_sets.FRAPPE)} are not in {options.data}; name their folder with --data"
        )
    models = options.models.split(",") if options.models else QUICK if options.quick else MODELS["ours"]
    for name in models:
        if name not in MODELS["ours"]:
            raise SystemExit(f"no peer has {name}; known: {', '.join(MODELS['ours'])}")
    stacks = options.stacks.split(",")
    for stack in stacks:
        if stack not in MODELS:
            raise SystemExit(f"no stack {stack}; known: {', '.join(MODELS)}")
    epochs = options.epochs or (QUICK_EPOCHS if options.quick else None)
    orders = [
        (stack, make_job(name, seed, made, epochs, options.device))
        for seed in range(options.first_seed, options.first_seed + (options.seeds or (1 if options.quick else 5)))
        for name in models
        for stack in stacks
        if name in MODELS[stack]
    ]
    if options.peers is None and not options.kept:
        for stack in sorted(set(stacks) - {"ours"}):
            environments.prepare(measure.WORK / "venvs", stack)
    runs, failures = [], []
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        trained = [pool.submit(train, *order, epochs is None, options.peers, options.kept) for order in orders]
        for future in concurrent.futures.as_completed(trained):
            try:
                run = future.result()
            except TrainingFailedError as error:
                failures.append(error)
                print(error, flush=True)
                continue
            if run is None:
                continue
            runs.append(run)
            if options.save is not None:
                with options.save.open("a") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
            print(
                f"{run.model} seed {run.seed} {run.stack}: AUC {run.auc:.5f}, logloss {run.logloss:.5f}, "
                f"{run.epochs} epochs of {run.epoch_cpu_s:.2f} s CPU, {run.epoch_s:.2f} s",
                flush=True,
            )
    report(runs)
    if failures:
        raise SystemExit(f"{len(failures)} of {len(orders)} runs failed")


def make_job(model: str, seed: int, settings: dict[str, Any], epochs: int | None, device: str) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((quality_sets.ZOO / f"{model}.yaml").read_text())
    if isinstance(job["schema"], str):
        job["schema"] = yaml.safe_load((quality_sets.ZOO / job["schema"]).read_text())
    job["data"]["train"]["path"] = settings["data.train.path"]
    job["data"]["valid"]["path"] = settings["data.valid.path"]
    job["train"] |= {"seed": seed, "threads": 1, "device": device} | ({} if epochs is None else {"epochs": epochs})
    return job


def train(stack: str, job: dict[str, Any], is_complete: bool, peers: Path | None, kept_only: bool) -> Run | None:
    """The run of a job; a kept one if there is one. None if only kept runs are wanted and there is none."""
    name = hashlib.sha256(json.dumps([stack, job, digest(stack)], sort_keys=True).encode()).hexdigest()[:20]
    kept = WORK / "results" / f"{name}.json"
    if kept.exists():
        return Run(**json.loads(kept.read_text()))
    if kept_only:
        return None
    folder = WORK / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(json.dumps(job))
    python, environment = sys.executable, os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if stack != "ours":  # nothing of ours may leak into theirs
        environment["PYTHONPATH"] = "" if peers is None else str(peers.resolve())
        if peers is None:
            python = str(environments.prepare(measure.WORK / "venvs", stack))
    command = [python, str(SCRIPTS / f"quality_{stack}.py"), "order.json", "result.json"]
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    title = f"{job['model']['name']} seed {job['train']['seed']} {stack}"
    if done.returncode != 0:
        raise TrainingFailedError(f"{title} failed: {(folder / 'log.txt').read_text()[-1500:]}")
    result = json.loads((folder / "result.json").read_text())
    run = Run(
        stack=stack,
        model=job["model"]["name"],
        seed=job["train"]["seed"],
        device=job["train"]["device"],
        is_complete=is_complete,
        **result,
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(run)))
    shutil.rmtree(folder)
    return run


def digest(stack: str) -> str:
    """Changes with anything a run depends on besides its job."""
    if stack == "ours":
        return quality.source_digest()
    texts = [path.read_bytes() for path in sorted(SCRIPTS.glob(f"quality_{stack}*.py"))]
    texts.append((SCRIPTS / "quality_order.py").read_bytes())
    return hashlib.sha256(b"".join(texts) + json.dumps(environments.INSTALLS[stack]).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
