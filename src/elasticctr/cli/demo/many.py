"""Training with several processes: two pservers and two trainers learn the same log, and with chaos one of each is
killed on the way. Whatever happens, every sample is counted once: as many as one process counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from elasticctr.cli.demo.shell import Shell
from elasticctr.cluster.feed import ask_status
from elasticctr.cluster.summary import read_summary
from elasticctr.errors import ElasticCTRError, InternalError
from elasticctr.net.access import read_token
from elasticctr.train.events import read_events

MODEL = "wide_deep"
# Killed when this share of the samples was learned from.
_WHEN = {"trainer-1": 0.05, "pserver-1": 0.25}
_ENDS_WITHIN_S = 600.0


def train_many(shell: Shell, directory: Path, *, chaos: bool) -> dict[str, Any]:
    """Runs after `train_models`: its run in one process says how many samples there are."""
    expected = _count_samples(directory / "runs" / MODEL)
    run = directory / "runs" / "many"
    job = directory / "many.yaml"
    job.write_text(yaml.safe_dump(_job(directory / "job.yaml"), sort_keys=False), encoding="utf-8")
    process = shell.start("train", str(job), "--run-dir", str(run), "--on", "local")
    try:
        killed = _harm(shell, process, run, expected) if chaos else []
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise InternalError(f"training with several processes did not end; look into {run}/logs") from None
    finally:
        if process.poll() is None:
            process.terminate()
    if process.returncode != 0:
        raise InternalError(f"training with several processes ended with status {process.returncode}: {run}/logs")
    summary = read_summary(run)
    roles = json.loads((run / "cluster" / "roles.json").read_text(encoding="utf-8"))["roles"]
    if summary.samples != expected:
        raise InternalError(f"{run}: {summary.samples:,} samples were counted, and there are {expected:,}")
    dead = f"with {' and '.join(killed)} killed on the way, " if killed else ""
    shell.say(f"2 pservers, 2 trainers: {dead}{summary.samples:,} samples, each counted once, as in one process")
    return {
        "samples": summary.samples,
        "expected": expected,
        "auc": summary.metrics["valid"]["auc"],
        "killed": killed,
        "restarts": sum(role["restarts"] for role in roles),
        "seconds": summary.seconds,
    }


def _harm(shell: Shell, process: subprocess.Popen[bytes], run: Path, expected: int) -> list[str]:
    """Kills roles when it is their time, as long as the job runs. Returns those it killed."""
    killed: list[str] = []
    while process.poll() is None and len(killed) < len(_WHEN):
        time.sleep(0.02)
        try:
            status = ask_status(run, read_token(run / "cluster" / "token"))
            roles = json.loads((run / "cluster" / "roles.json").read_text(encoding="utf-8"))["roles"]
        except (ElasticCTRError, OSError, ValueError):
            continue  # not there yet
        for name, share in _WHEN.items():
            pid = next((role["pid"] for role in roles if role["name"] == name), None)
            if name in killed or status.get("phase") != "training" or pid is None:
                continue
            if status.get("samples", 0) >= share * expected:
                os.kill(pid, signal.SIGKILL)
                killed.append(name)
                shell.say(f"kill -9 {pid}: {name}, after {status['samples']:,} samples")
    return killed


def _count_samples(run: Path) -> int:
    """Samples of an epoch, as the run in one process counted them."""
    counted = [event["rows"] for event in read_events(run / "events.jsonl", "data") if event.get("split") == "train"]
    return int(counted[0])


def _job(path: Path) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    del job["data"]["test"]
    job["model"] = {**job["model"], "name": MODEL}
    job["train"] = {"batch_size": job["train"]["batch_size"], "epochs": 1}
    # Small pieces, short waits: all of it takes seconds, and so should what follows a kill.
    quick = {"chunk_mib": 4, "checkpoint_s": 1.0, "lease_s": 3, "pserver_wait_s": 3}
    job["cluster"] = {"pservers": 2, "trainers": 2, **quick}
    return job
