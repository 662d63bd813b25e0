"""The cost of parameter servers: a pserver alone, whole runs against one process, and PaddlePaddle's parameter server.

`pserver_pull_vs_table`, `pserver_push_vs_table`: rows per CPU second of a pserver process over those of the table in
the trainer's own process. `cpu_vs_embedded`: CPU time per sample of all processes of a run with pservers, coordinator
and launcher included, over that of one process alone on the machine, in steady state (ps_runs.py), for the worst of the
ways measured; `cpu_vs_full_machine` is the same over one process per core. `bytes_per_sample`: both ways, at
the default batch size. `vs_paddle_ps`: CPU time per sample of PaddlePaddle's over ours, 1 pserver and 2 trainers,
though Paddle's has its samples in memory while ours reads text. Prints tables, then one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import ps_alone
import ps_paddle
import ps_runs
from contenders.environments import EnvironmentSetupError, prepare
from contenders.process import SCRIPTS
from measure import WORK, parse_arguments, stamp
from ps_runs import Speed

BATCH = 512  # the default of a job
LARGE_BATCH = 4096
DENSE_FLOATS = 295_375  # of the model

Way = tuple[int, int, int]  # batch size, pservers, trainers; no pservers: one process, or as many as cores


@dataclass(frozen=True)
class Plan:
    rows: int
    times: int  # passes over the log in a run
    rounds: int  # rounds of the pserver alone
    runs: int  # runs of each way
    ways: tuple[Way, ...]
    paddle_s: float


FULL = Plan(
    200_000,
    4,
    7,
    3,
    ((BATCH, 1, 1), (BATCH, 1, 2), (BATCH, 2, 2), (BATCH, 2, 4), (LARGE_BATCH, 1, 2), (LARGE_BATCH, 2, 4)),
    15.0,
)
QUICK = Plan(40_000, 8, 3, 1, ((BATCH, 1, 2),), 3.0)


def run_alone(folder: Path, plan: Plan) -> dict[str, float]:
    ids = np.load(folder / "ids.npy")[: 10 * LARGE_BATCH]
    print("a pserver alone, million rows per CPU second   table    pserver   ratio")
    ratios: dict[str, list[float]] = {"pull": [], "push": []}
    bytes_per_sample = 0.0
    for size in (BATCH, LARGE_BATCH):
        alone = ps_alone.measure(ids, size, DENSE_FLOATS, plan.rounds, uses_unix=False)
        for name, table, pserver in (
            ("pull", alone.table_pull, alone.pserver_pull),
            ("push", alone.table_push, alone.pserver_push),
        ):
            print(f"  {name}, batches of {size:<28}{table:10.1f} {pserver:10.1f} {pserver / table:7.2f}")
            ratios[name].append(pserver / table)
        print(f"  bytes per sample, rows alone and all: {alone.row_bytes:.0f}, {alone.bytes:.0f}")
        bytes_per_sample = bytes_per_sample or alone.bytes
    return {
        "pserver_pull_vs_table": min(ratios["pull"]),
        "pserver_push_vs_table": min(ratios["push"]),
        "bytes_per_sample": bytes_per_sample,
    }


def run_all(folder: Path, plan: Plan) -> dict[Way, list[Speed]]:
    """The speeds of each way, one per round."""
    work = folder / "ps_runs"
    work.mkdir(exist_ok=True)
    found: dict[Way, list[Speed]] = {}
    print("\nwhole runs            batch   CPU us per sample   of one process   samples/s", flush=True)
    for size in dict.fromkeys(size for size, _, _ in plan.ways):
        job = ps_runs.write_job(work, folder / "train", size, plan.times)
        ways = [(size, 0, 0), (size, 0, 1), *(way for way in plan.ways if way[0] == size)]
        found |= {way: [] for way in ways}
        for _ in range(plan.runs):  # in turns, so that other load on the machine affects all of them equally
            for way in ways:
                found[way].append(run_way(job, *way[1:]))
        for way in ways:
            _, pservers, trainers = way
            one_process = "one process per core" if trainers else "one process"
            name = f"{pservers} pserver, {trainers} trainer" if pservers else one_process
            cpu_us, rate = median(s.cpu_us for s in found[way]), median(s.samples_per_s for s in found[way])
            print(f"  {name:<22}{size:>5} {cpu_us:15.1f} {compare(found, way, 0):18.2f} {rate:14,.0f}")
        sys.stdout.flush()
    return found


def compare(found: dict[Way, list[Speed]], way: Way, reference: int) -> float:
    """CPU time over that of one process (`reference` 0) or one per core (1), as the median of the rounds, since other
    load on the machine's host changes over minutes."""
    of = zip(found[way], found[(way[0], 0, reference)], strict=True)
    return median(speed.cpu_us / other.cpu_us for speed, other in of)


def run_way(job: Path, pservers: int, trainers: int) -> Speed:
    if pservers:
        return ps_runs.measure(job, pservers, trainers)
    return ps_runs.measure_full_machine(job) if trainers else ps_runs.measure_one_process(job)


def run_paddle(folder: Path, plan: Plan, is_quick: bool) -> Speed | None:
    if is_quick and not (WORK / "venvs" / "paddle_ps").exists():
        print("\nPaddlePaddle's parameter server: skipped; a full run creates its environment")
        return None
    try:
        python = prepare(WORK / "venvs", "paddle_ps")
        speed = ps_paddle.measure(python, folder, BATCH, 1, 2, plan.paddle_s)
    except (EnvironmentSetupError, ps_paddle.PeerError, OSError) as failure:
        print(f"\nPaddlePaddle's parameter server did not run: {failure}")
        return None
    print(f"\nPaddlePaddle 2.6.2, 1 server, 2 trainers, batch {BATCH}, samples in memory: ", end="")
    print(f"{speed.cpu_us:.1f} CPU us per sample, {speed.samples_per_s:,.0f} samples/s")
    return speed


def main() -> None:
    is_quick = parse_arguments(__doc__ or "").quick
    plan = QUICK if is_quick else FULL
    command = [sys.executable, str(SCRIPTS / "clicks.py"), str(WORK / "data"), str(plan.rows)]
    folder = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    result: dict[str, float | None] = dict(run_alone(folder, plan))
    found = run_all(folder, plan)
    for name, reference in (("cpu_vs_embedded", 0), ("cpu_vs_full_machine", 1)):
        result[name] = max(compare(found, way, reference) for way in plan.ways)
    paddle = run_paddle(folder, plan, is_quick)
    result["vs_paddle_ps"] = None if paddle is None else paddle.cpu_us / median(s.cpu_us for s in found[BATCH, 1, 2])
    rounded = {name: None if value is None else float(f"{value:.4g}") for name, value in result.items()}
    print(json.dumps({**rounded, **stamp()}))


if __name__ == "__main__":
    main()
