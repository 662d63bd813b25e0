"""The second half: the trained model is published and its rows served, changed and rolled back while a client asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.cli.demo.shell import Shell
from elasticctr.cli.demo.stack import REPLICAS, SHARDS, Stack
from elasticctr.cli.demo.traffic import TableRows, Traffic
from elasticctr.cube.client import CubeClient
from elasticctr.errors import InternalError
from elasticctr.versions.repository import Repository

MODEL = "ctr"
RUN = "deepfm"
MORE_STEPS = 10
SERVERS = SHARDS * REPLICAS
BATCH = 2000


def serve_model(shell: Shell, directory: Path) -> dict[str, Any]:
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()

    run, repo = directory / "runs" / RUN, directory / "repo"
    published = publish_base(shell, run, repo)
    name, rows = _read_table(run)
    table, tables = f"{MODEL}/{name}", {int(published["version"]): rows}
    with Stack(directory / "cube", repo, MODEL) as stack:
        shell.say(f"\nstarting {SHARDS} shards x {REPLICAS} replicas: cube servers, an agent beside each, one transfer")
        started = time.monotonic()
        stack.start()
        took_s = time.monotonic() - started
        shell.say(f"all {2 * SERVERS + 1} processes answer after {took_s:.1f} s; logs in {directory}/cube/logs")
        built_s = stack.wait_live(1)
        shell.say(f"version 1 built and live on {SERVERS} servers after {built_s:.2f} s more; {_sizes(stack)}")
        settings = directory / "cube" / "cube.yaml"
        stack.write_client_settings(settings)
        with CubeClient(settings) as client:
            lookup_s = _compare(client, table, rows)
        count = len(rows.feasigns)
        shell.say(f"looked up all {count:,} rows in {lookup_s * 1000:.0f} ms: every float equals the trained table's")
        with Traffic(settings, table, tables) as traffic:
            delta = train_more(shell, directory, run, repo, lambda: tables.setdefault(2, _read_table(run)[1]))
            delta_s = _wait_live(stack, repo, 2)
            shell.say(f"version 2 active on all servers {delta_s:.2f} s after it was announced, under load")
            time.sleep(0.5)
            shell.show("versions", "rollback", str(repo), MODEL, "1")
            back_s = _wait_live(stack, repo, 1)
            shell.say(f"version 1 active again on all servers {back_s:.2f} s after it was announced")
            time.sleep(0.5)
        counts = traffic.counts
    shell.say(
        f"\nmeanwhile a client asked {counts.requests:,} times for {counts.rows:,} rows: {counts.errors} errors, "
        f"{counts.mixed} answers with a row of another version than they named; "
        f"p50 {counts.percentile_ms(50):.2f} ms, p99 {counts.percentile_ms(99):.2f} ms"
    )
    shell.say("answers by version: " + ", ".join(f"{v}: {n:,}" for v, n in sorted(counts.by_version.items())))
    shell.say("all processes stopped")
    if counts.errors or counts.mixed:
        raise InternalError(f"{counts.errors} errors, {counts.mixed} mixed answers; the first: {counts.first_error}")
    return {
        "rows": len(rows.feasigns), "live_s": built_s, "delta_rows": delta["rows"], "delta_live_s": delta_s,
        "rollback_s": back_s, "requests": counts.requests, "errors": counts.errors, "mixed": counts.mixed,
        "p50_ms": counts.percentile_ms(50), "p99_ms": counts.percentile_ms(99),
    }  # fmt: skip


def publish_base(shell: Shell, run: Path, repo: Path) -> dict[str, Any]:
    published = shell.ask("publish", str(run), "--repo", str(repo), "--model", MODEL, "--checkpoint", "last", told=True)
    shell.say(f"version {published['version']}, a base: {published['rows']:,} rows, {published['bytes']:,} bytes")
    return published


def train_more(
    shell: Shell, directory: Path, run: Path, repo: Path, before: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Some more steps, published as a delta; `before` is called just before it is."""
    steps = _steps(run) + MORE_STEPS
    changes = [f"model.name={RUN}", "train.epochs=3", "train.early_stopping=null", f"train.steps={steps}"]
    command = ["train", str(directory / "job.yaml"), "--run-dir", str(run), "--resume"]
    shell.ask(*command, *(word for change in changes for word in ("--set", change)), told=True)
    shell.say(f"{MORE_STEPS} more steps; a client has been asking all the time")
    before()
    command = ["publish", str(run), "--repo", str(repo), "--model", MODEL, "--checkpoint", "last", "--delta"]
    delta = shell.ask(*command, told=True)
    rows = f"{delta['rows']:,} rows changed, {delta['gone']:,} gone"
    shell.say(f"version {delta['version']}, a delta: {rows}, {delta['bytes']:,} bytes")
    return delta


def _wait_live(stack: Stack, repo: Path, version: int) -> float:
    """Until every server answers from a version; the seconds since the donefile announced it."""
    announced = Repository(str(repo)).events(MODEL)[-1].time
    stack.wait_live(version)
    return time.time() - announced


def _read_table(run: Path) -> tuple[str, TableRows]:
    """The table of a run's newest checkpoint, as the trainer has it."""
    from elasticctr.train.checkpoint import open_checkpoint
    from elasticctr.train.learner import Learner
    from elasticctr.train.run_directory import RunDirectory

    learner = Learner(RunDirectory(run).load_job())
    learner.load(open_checkpoint(run))
    (table,) = learner.sparse.tables
    parts = list(table.rows())
    feasigns = np.concatenate([part.feasigns for part in parts])
    order = np.argsort(feasigns)
    return table.settings.name, TableRows(feasigns[order], np.concatenate([part.weights for part in parts])[order])


def _steps(run: Path) -> int:
    from elasticctr.train.checkpoint import open_checkpoint

    return open_checkpoint(run).step


def _compare(client: CubeClient, table: str, rows: TableRows) -> float:
    """Looks up every row, and as many feasigns nobody has; the seconds it took."""
    strangers = np.setdiff1d(np.random.default_rng(1).integers(0, 1 << 64, BATCH, dtype=np.uint64), rows.feasigns)
    took_s = 0.0
    for start in range(0, len(rows.feasigns), BATCH):
        asked = np.concatenate([rows.feasigns[start : start + BATCH], strangers[: 0 if start else BATCH]])
        started = time.perf_counter()
        answer = client.get(table, asked)
        took_s += time.perf_counter() - started
        if not rows.agrees(asked, answer).all():
            raise InternalError(f"{table} version {answer.version}: served rows differ from the trained table")
    return took_s


def _sizes(stack: Stack) -> str:
    """What the first replica of each shard holds."""
    told = []
    for shard, replicas in enumerate(stack.servers):
        (version,) = stack.ask(replicas[0], "/v1/status")["models"][0]["versions"]
        told.append(f"shard {shard}: {version['rows']:,} rows, {version['bytes']:,} bytes")
    return "; ".join(told)
