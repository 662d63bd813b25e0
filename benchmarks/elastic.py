"""Goodput while trainers come and go and a pserver dies: useful samples over possible ones, with and without standby.

Trainers wait in every step as if they computed on machines of their own, so that this machine's few cores are not what
is measured. Possible is the pace of a trainer in the undisturbed first part of the run, times the time trainers were
there, from the start of their processes on. Useful are samples that are part of the model at the end: work that a
rollback makes undone does not count. Prints tables, then one line of JSON with `goodput_standby` and `goodput`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

import measure
from elasticctr.cluster.launch import Launch, begin, make_trainer
from elasticctr.cluster.local import LocalEngine
from elasticctr.control.peer import Peer
from elasticctr.data.schema import Format
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.errors import ElasticCTRError
from elasticctr.ps.addresses import find_coordinator
from elasticctr.train.job import load_job

ROWS = 40_000
BATCH = 128
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
    step_s: float = 0.04
    trainers: int = 3
    pservers: int = 2

    def script(self) -> list[tuple[float, str, str]]:
        """What happens when, in parts of the window."""
        steps = [
            (0.02, "add", "trainer-3"),
            (0.15, "kill", "trainer-0"),
            (0.35, "kill", "pserver-1"),
            (0.55, "remove", "trainer-2"),
            (0.65, "add", "trainer-4"),
            (0.80, "kill", "trainer-1"),
        ]
        return [(part * self.window_s, what, role) for part, what, role in steps]


FULL = Plan(baseline_s=30.0, window_s=180.0)
QUICK = Plan(baseline_s=10.0, window_s=45.0)


@dataclass
class Timeline:
    """What was seen, every now and then: seconds, samples, trainers whose processes run."""

    seen: list[tuple[float, int, int]] = field(default_factory=list)

    def samples(self, start_s: float, end_s: float) -> int:
        inside = [samples for at_s, samples, _ in self.seen if start_s <= at_s <= end_s]
        return inside[-1] - inside[0] if inside else 0

    def longest_pause_s(self, start_s: float, end_s: float) -> float:
        """The longest time in which nothing new was learned."""
        longest, most, since_s = 0.0, -1, start_s
        for at_s, samples, _ in self.seen:
            if start_s <= at_s <= end_s:
                if samples > most:
                    most, since_s = samples, at_s
                longest = max(longest, at_s - since_s)
        return longest

    def trainer_seconds(self, start_s: float, end_s: float) -> float:
        inside = [entry for entry in self.seen if start_s <= entry[0] <= end_s]
        return sum(a[2] * (b[0] - a[0]) for a, b in pairwise(inside))


def write_job(folder: Path, plan: Plan, *, standby: bool) -> Path:
    """A job that would run for much longer than it is looked at."""
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


class Run:
    """One job on the local engine, looked at from the thread that supervises it."""

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self._plan, self._launch = plan, launch
        self._engine = LocalEngine()
        self._line = Timeline()
        self._began_s = time.monotonic()
        self._first_s: float | None = None  # when every trainer had learned something
        self._todo = plan.script()
        self._peer: Peer | None = None
        self.notes: list[str] = []

    def run(self) -> tuple[float, float, float, float]:
        """Goodput; samples per second of a trainer undisturbed, and of all in the disturbed window; longest pause."""
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
        pace = self._line.samples(self._first_s, start_s) / self._line.trainer_seconds(self._first_s, start_s)
        useful = self._line.samples(start_s, end_s)
        possible = pace * self._line.trainer_seconds(start_s, end_s)
        return useful / possible, pace, useful / plan.window_s, self._line.longest_pause_s(start_s, end_s)

    def _look(self) -> bool:
        now_s = time.monotonic() - self._began_s
        if now_s > 300 and self._first_s is None:
            raise SystemExit(f"no sample was learned from within 300 s; logs in {self._launch.logs}")
        states = self._engine.states()
        there = sum(s.phase == "running" for s in states if s.name.startswith("trainer"))
        status = self._status()
        if status is not None:
            self._line.seen.append((now_s, int(status.get("samples") or 0), there))
            working = [r for r in status.get("roles", []) if r.get("role") == "trainer" and r.get("state") == "working"]
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
        self.notes.append(f"{at_s:.0f} s {what} {role}")
        if what == "add":
            shared = ["--job", str(self._launch.run.job), "--token-file", self._token_file()]
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
    result = {}
    print(f"{plan.trainers} trainers, {plan.pservers} pservers; {plan.baseline_s:g} s undisturbed, then for", end=" ")
    print(f"{plan.window_s:g} s: {', '.join(f'{what} {role}' for _, what, role in plan.script())}")
    print("                  goodput   one trainer before   all trainers after   longest pause, s", flush=True)
    try:
        for key, standby in (("goodput_standby", True), ("goodput", False)):
            run = Run(plan, begin(load_job(write_job(folder, plan, standby=standby)), resume=False))
            result[key], pace, rate, pause_s = run.run()
            name = "with standby" if standby else "without standby"
            print(f"  {name:<16}{result[key]:8.3f} {pace:21,.0f} {rate:24,.0f} {pause_s:18.1f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measure.print_result(result)


if __name__ == "__main__":
    main()
