"""Goodput while trainers come and go and a pserver dies: useful samples over possible ones, with and without a standby.

Useful samples are those in the final model: samples undone by a rollback and batches computed twice do not count. The
possible number is the rate of one trainer in the undisturbed first part of the same run, times the time that trainers'
processes ran. That time includes loading libraries, joining and connecting, but not the time between a trainer's death
and the engine's new process.

Trainers sleep in every step, as if they computed on other machines, so that this machine's few cores are not the
bottleneck. A starting trainer still takes CPU time from the others, which counts against the system.

Prints what each event cost until the next one, then one line of JSON with `goodput_standby` and `goodput`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

import measure
from elastic_timeline import Cost, Moment, Timeline
from elasticctr.cluster.launch import Launch, begin, make_trainer
from elasticctr.cluster.local import LocalEngine
from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.errors import ElasticCTRError
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.train.job import load_job

ROWS = 40_000
BATCH = 256
MODEL = '''"""Wide & Deep whose training step takes {step_s} s longer, as if it were computed elsewhere."""

import time

from elasticctr.models.wide_deep import WideDeep


class Paced(WideDeep):
    name = "paced"

    def forward(self, inputs):
        if self.training:
            time.sleep({step_s})
        return super().forward(inputs)
'''


@dataclass(frozen=True)
class Plan:
    baseline_s: float
    window_s: float
    step_s: float = 0.08
    trainers: int = 3
    pservers: int = 2

    def script(self) -> list[tuple[float, str, str]]:
        """The events and their times, as fractions of the window."""
        steps = [
            (0.02, "add", "trainer-3"),
            (0.15, "kill", "trainer-0"),
            (0.35, "kill", "pserver-1"),
            (0.55, "remove", "trainer-2"),
            (0.65, "add", "trainer-4"),
            (0.80, "kill", "trainer-1"),
        ]
        return [(part * self.window_s, what, role) for part, what, role in steps]


FULL = Plan(baseline_s=20.0, window_s=180.0)
QUICK = Plan(baseline_s=10.0, window_s=45.0)


def write_job(folder: Path, plan: Plan, *, standby: bool) -> Path:
    """Writes a job that would run much longer than it is observed."""
    log = folder / "log"
    if not log.exists():
        spec = criteo_spec(Format.SLOT, slots=8, dense=4, cardinalities=(1000,))
        write_log(spec, folder / "made", ROWS)
        log.mkdir()
        (part,) = (folder / "made").glob("part-*")
        pace = (plan.trainers + 2) * BATCH / plan.step_s
        for number in range(int(pace * (plan.baseline_s + plan.window_s) * 2 / ROWS) + 2):
            (log / f"part-{number:05d}.txt").symlink_to(part)
    (folder / "paced.py").write_text(MODEL.format(step_s=plan.step_s))
    settings: dict[str, Any] = {
        "run_dir": str(folder / ("with" if standby else "without")),
        "schema": str(folder / "made" / "schema.yaml"),
        "data": {"train": {"path": str(log / "part-*")}},
        "model": {"name": str(folder / "paced.py"), "dim": 8, "hidden": [32, 16]},
        "train": {"batch_size": BATCH, "threads": 1, "keep_checkpoints": 2},
        "cluster": {
            "strategy": "async",
            "trainers": plan.trainers,
            "pservers": plan.pservers,
            "standby": standby,
            "chunk_mib": 0.5,
            "checkpoint_s": 5.0,
            "lease_s": 10.0,
            "max_restarts": 20,
        },
    }
    path = folder / f"job-{standby}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@dataclass(frozen=True, slots=True)
class Result:
    pace: float  # samples per second of one trainer, undisturbed
    window: Cost
    costs: list[Cost]  # by event

    @property
    def goodput(self) -> float:
        return 1 - self.window.lost / self.window.possible


class Run:
    """One job on the local engine, observed from the thread that supervises it."""

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self._plan, self._launch = plan, launch
        self._engine = LocalEngine()
        self._line = Timeline()
        self._began_s = time.monotonic()
        self._first_s: float | None = None  # when every trainer had learned from a sample
        self._todo = plan.script()
        self._done: list[tuple[float, str, str]] = []  # when, what, to whom
        self._peer: Peer | None = None

    def run(self) -> Result:
        plan = self._plan
        self._engine.start(self._launch.roles, log_dir=str(self._launch.logs), max_restarts=20)
        try:
            states = self._engine.wait(self._look, 0.1)
        finally:
            self._engine.stop(3.0)
            if self._peer is not None:
                self._peer.close()
        failed = [state for state in states if state.phase == "failed"]
        if failed or self._first_s is None:
            raise SystemExit(f"the run did not get far: {failed}; logs in {self._launch.logs}")
        start_s = self._first_s + plan.baseline_s
        end_s = start_s + plan.window_s
        line = self._line
        pace = line.samples(self._first_s, start_s) / max(line.trainer_seconds(self._first_s, start_s), 1e-9)
        if pace <= 0:
            raise SystemExit(f"nothing was learned in the first {plan.baseline_s:.0f} s; the machine is too busy")
        begins = [(start_s + at_s, f"{at_s:.0f} s {what} {role}") for at_s, what, role in self._done]
        begins = [(start_s, "nothing yet"), *begins, (end_s, "")]
        costs = [line.cost(what, pace, at_s, next_s) for (at_s, what), (next_s, _) in pairwise(begins)]
        return Result(pace, line.cost("all", pace, start_s, end_s), costs)

    def _look(self) -> bool:
        now_s = time.monotonic() - self._began_s
        if now_s > 300 and self._first_s is None:
            raise SystemExit(f"no sample was learned from within 300 s; logs in {self._launch.logs}")
        states = self._engine.states()
        there = {(s.name, s.pid) for s in states if s.phase == "running" and s.name.startswith("trainer")}
        status = self._status()
        if status is not None:
            working = {(r["name"], r["pid"]) for r in status["roles"] if r["state"] == "working"} & there
            self._line.seen.append(Moment(now_s, int(status.get("samples") or 0), len(there), len(working)))
            if self._first_s is None and len(working) >= self._plan.trainers and status.get("samples"):
                self._first_s = now_s + 2.0
        if self._first_s is None:
            return False
        at_s = now_s - self._first_s - self._plan.baseline_s
        while self._todo and at_s >= self._todo[0][0]:
            self._do(*self._todo.pop(0)[1:], at_s)
        return at_s > self._plan.window_s

    def _status(self) -> dict[str, Any] | None:
        try:
            if self._peer is None:
                where = find_coordinator(self._launch.coordinator or "")
                self._peer = Peer(where, self._launch.token, timeout_s=5.0)
            return self._peer.get("/v1/status")
        except ElasticCTRError:
            return None

    def _do(self, what: str, role: str, at_s: float) -> None:
        self._done.append((at_s, what, role))
        if what == "add":
            shared = ["--config", str(self._launch.run.job), "--token-file", self._token_file()]
            finding = ["--coordinator", self._launch.coordinator or ""]
            self._engine.add(make_trainer(int(role.rpartition("-")[2]), shared, finding))
        elif what == "remove":
            # Not Engine.remove: that waits for the end, and meanwhile nobody would restart the others.
            self._signal(role, signal.SIGTERM)
        else:
            self._signal(role, signal.SIGKILL)

    def _token_file(self) -> str:
        arguments = list(self._launch.roles[0].arguments)
        return arguments[arguments.index("--token-file") + 1]

    def _signal(self, role: str, number: signal.Signals) -> None:
        (state,) = [s for s in self._engine.states() if s.name == role]
        if state.pid is not None:
            os.kill(state.pid, number)


def main() -> None:
    is_quick = measure.parse_arguments(__doc__ or "").quick
    plan = QUICK if is_quick else FULL
    folder = Path(tempfile.mkdtemp(prefix="elastic-"))
    os.environ["OMP_NUM_THREADS"] = "1"
    result: dict[str, float] = {}
    times = f"{plan.baseline_s:g} s undisturbed, then {plan.window_s:g} s"
    print(f"{plan.trainers} trainers, {plan.pservers} pservers; {times}", flush=True)
    try:
        for key, standby in (("goodput_standby", True), ("goodput", False)):
            run = Run(plan, begin(load_job(write_job(folder, plan, standby=standby)), resume=False))
            found = run.run()
            result |= {key: found.goodput, key.replace("goodput", "pause_s"): found.window.pause_s}
            report("with standby" if standby else "without standby", found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measure.print_result(result)


def report(name: str, found: Result) -> None:
    print(f"\n{name}: goodput {found.goodput:.3f}; one trainer undisturbed {found.pace:,.0f} samples/s")
    print("  seconds of one trainer until the next event:  possible     lost  of it starting   longest pause, s")
    for cost in [*found.costs, found.window]:
        figures = f"{cost.possible:9.1f} {cost.lost:8.1f} {cost.starting:15.1f} {cost.pause_s:18.1f}"
        print(f"  {cost.what:<45}{figures}", flush=True)


if __name__ == "__main__":
    main()
