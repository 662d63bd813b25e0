"""The whole stack under kill -9 and SIGSTOP: is any answer wrong, any sample or version lost, anything stuck?

Real processes on loopback: two trainings that publish versions (one process: bases and deltas; coordinator, pservers
and trainers: bases), a Cube of 2 shards x 2 replicas with agents and transfer, two prediction servers over it, and
clients of several protocols that check every answer against the repository. Processes are killed or stopped at random
and restarted, as by an operator's supervisor. The seed is printed; `--seed` repeats a run's random choices.

One of the cube servers of a shard, and one of the prediction servers, is always left alone until the other is ready
again, so no request may fail. `--keep` keeps logs and repository.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
from chaos_checks import count_wrong_rows, find_lost_versions
from chaos_training import ROWS, Flow, command_of
from elasticctr.errors import ElasticCTRError
from elasticctr.versions.repository import Repository
from stack import Process, Stack, make_log, wait_until

HERE = Path(__file__).resolve().parent
FLOWS = {"ctr": False, "wide": True}  # model: whether it is trained with pservers
RESTART_S = 0.3  # a supervisor's pause
FIRST_S = 900.0  # until something is published: many processes import torch at once
BOUND_S = 240.0  # without any movement for so long, something is stuck
PATIENT = {"queue_ms": 20_000, "timeout_ms": 30_000}  # two cores run some twenty processes


@dataclass(frozen=True)
class Plan:
    chaos_s: float
    every_s: float  # mean time between faults


QUICK, FULL = Plan(120.0, 3.0), Plan(3600.0, 5.0)


@dataclass
class Result:
    kills: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    crashed: list[str] = field(default_factory=list)  # ended without being killed
    stuck: list[str] = field(default_factory=list)
    lost: int = 0
    wrong: int = 0
    failed: int = 0
    notes: list[str] = field(default_factory=list)


class Chaos:
    def __init__(self, root: Path, plan: Plan, seed: int) -> None:
        self.root, self._plan = root, plan
        self._draw = random.Random(seed)
        self.result = Result()
        log = root / "log"
        make_log(log, ROWS)
        self.stack = Stack(root, models=list(FLOWS), shards=2, replicas=2, servers=2, limits=PATIENT)
        self.repository = Repository(str(self.stack.repository))
        self.flows = [
            Flow(root, log, self.stack.repository, model, is_cluster=is_cluster) for model, is_cluster in FLOWS.items()
        ]
        self._killed: set[int] = set()  # process ids
        self._stopped: dict[int, tuple[float, Process | None]] = {}  # when each continues
        self._dead_since: dict[str, float] = {}
        self._seen: dict[str, tuple[Any, float]] = {}
        self._live: dict[str, int] = {}
        self._clients: subprocess.Popen[str] | None = None
        self._began = time.monotonic()

    # The run

    def run(self) -> Result:
        self._say("starting")
        for flow in self.flows:
            flow.start()
        self.stack.start()
        for model in FLOWS:
            wait_until(lambda model=model: self._newest(model), f"first version of {model}", FIRST_S)
            self.stack.wait_live(model, 1)
        for one in self.stack.cube:
            for server in one:
                wait_until(lambda server=server: server.answers("/readyz"), f"{server.name} ready")
        self._start_clients()
        self._say(f"everything is up; {self._plan.chaos_s:g} s of chaos")
        until = time.monotonic() + self._plan.chaos_s
        next_blow = time.monotonic() + 2
        while time.monotonic() < until:
            self._supervise()
            self._watch()
            if time.monotonic() >= next_blow:
                self._strike()
                next_blow = time.monotonic() + self._draw.expovariate(1 / self._plan.every_s)
            time.sleep(0.1)
        self._say("no more faults; waiting for everything to settle")
        self._settle()
        return self.result

    def _settle(self) -> None:
        """Restarts everything, waits until training ends and the last versions are live, and checks everything."""
        for pid in list(self._stopped):
            self._resume(pid)
        for flow in self.flows:
            flow.is_ending = True
        deadline = time.monotonic() + 2 * BOUND_S
        while not all(flow.is_over for flow in self.flows) and time.monotonic() < deadline:
            self._supervise()
            self._watch()
            time.sleep(0.2)
        for flow in self.flows:
            if not flow.is_over:
                self._stuck(f"training of {flow.model} did not end; log {flow.process.log}")
        for model in FLOWS:
            self._settle_model(model, self._newest(model), deadline)
        self._stop_clients()
        for flow in self.flows:
            tally = flow.finish()
            self.result.lost += tally.lost
            self.result.notes += tally.messages
            self._say(f"{flow.model}: {tally.jobs} jobs finished and counted, {self._newest(flow.model)} versions")
        self._verify()

    def _settle_model(self, model: str, newest: int, deadline: float) -> None:
        urls = [self.stack.transfer.url, *(one.url for one in self.stack.serve)]
        behind = list(urls)
        while behind and time.monotonic() < deadline:
            self._supervise()
            behind = [url for url in urls if self._live_at(url, model) != newest]
            time.sleep(0.3)
        for url in behind:
            self._stuck(f"{model}: {url} answers from {self._live_at(url, model)}, the newest is {newest}")
        for replica in range(2):
            self._check_replica(model, newest, replica)

    def _check_replica(self, model: str, version: int, replica: int) -> None:
        try:
            bad, asked = count_wrong_rows(self.stack, self.repository, model, version, replica)
        except ElasticCTRError as e:
            self._stuck(f"replica {replica} does not answer from {model} version {version}: {e}")
            return
        self.result.wrong += bad
        if bad:
            self.result.notes.append(f"replica {replica}: {bad} of {asked} rows of {model} {version} are wrong")

    def _verify(self) -> None:
        for model in FLOWS:
            lost = find_lost_versions(self.repository, model, self._draw)
            self.result.lost += len(lost)
            self.result.notes += lost

    # Faults

    def _strike(self) -> None:
        victims = self._victims()
        if not victims:
            return
        name = self._draw.choice(sorted(victims))
        pid, process = victims[name]
        kind = name.rstrip("-0123456789")
        with contextlib.suppress(ProcessLookupError):
            if self._draw.random() < 0.7:
                self._killed.add(pid)
                self.result.kills[kind] += 1
                os.kill(pid, signal.SIGKILL)
                self._say(f"kill -9 {name}")
            else:
                seconds = self._draw.uniform(0.5, 8.0)
                self.result.stops[kind] += 1
                self._stopped[pid] = (time.monotonic() + seconds, process)
                os.kill(pid, signal.SIGSTOP)
                if process is not None:
                    process.is_paused = True
                self._say(f"stop {name} for {seconds:.1f} s")

    def _victims(self) -> dict[str, tuple[int, Process | None]]:
        """Every running process except the last ready one of each group of replicas."""
        found: dict[str, tuple[int, Process | None]] = {}
        for group in (*self.stack.cube, self.stack.serve):
            ready = [one for one in group if one.answers("/readyz")]
            for one in ready if len(ready) > 1 else []:
                found[one.name] = (one.pid, one)
        for one in (*self.stack.agents, self.stack.transfer):
            if one.is_running and not one.is_paused:
                found[one.name] = (one.pid, one)
        for flow in self.flows:
            if flow.process.is_running and not flow.process.is_paused:
                found[flow.process.name] = (flow.process.pid, flow.process)
            for role, pid in flow.roles().items():
                if pid not in self._stopped and str(flow.run_dir) in command_of(pid):
                    found[role] = (pid, None)
        for pid in self._publishers():
            found["publisher"] = (pid, None)
        return found

    def _publishers(self) -> list[int]:
        """The children of a coordinator that publish checkpoints."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        where = str(self.stack.repository)
        return [pid for pid in pids if " publish " in (command := command_of(pid)) and where in command]

    # The supervisor

    def _supervise(self) -> None:
        now = time.monotonic()
        for pid, (until, _) in list(self._stopped.items()):
            if now >= until:
                self._resume(pid)
        for one in self.stack.processes:
            if not one.is_running:
                self._start_again(one.name, one.pid, one.exit_status, one.start)
        for flow in self.flows:
            flow.look()
            process = flow.process
            if not flow.is_over and not process.is_running and process.exit_status != 0:
                self._start_again(process.name, process.pid, process.exit_status, flow.start)

    def _start_again(self, name: str, pid: int, status: int | None, start: Any) -> None:
        now = time.monotonic()
        since = self._dead_since.setdefault(name, now)
        if now - since < RESTART_S:
            return
        del self._dead_since[name]
        if pid not in self._killed:
            self.result.crashed.append(f"{name} ended with {status}")
            self._say(f"{name} ended by itself with {status}")
        start()

    def _resume(self, pid: int) -> None:
        _, process = self._stopped.pop(pid)
        if process is not None:
            if process.pid != pid:
                return
            process.is_paused = False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    # Progress

    def _watch(self) -> None:
        now = time.monotonic()
        for flow in self.flows:
            if not flow.is_over:
                self._moves(f"training of {flow.model}", flow.progress(), now)
        for name in ("transfer", "serve-0", "serve-1"):
            process = next(one for one in self.stack.processes if one.name == name)
            for model in FLOWS:
                key = f"{model} at {name}"
                if now - self._seen.get(f"asked {key}", (0, 0.0))[1] < 2.0:
                    continue
                self._seen[f"asked {key}"] = (0, now)
                newest = self._newest(model)
                live = 0 if process.is_paused or not process.is_running else self._live_at(process.url, model)
                live = max(live, self._live.get(key, 0))
                self._live[key] = live
                # Being up to date counts as progress.
                self._moves(key, (live, newest if live >= newest else 0, now if live >= newest else 0), now)

    def _moves(self, what: str, value: Any, now: float) -> None:
        before, since = self._seen.get(what, (None, now))
        if value != before:
            self._seen[what] = (value, now)
        elif now - since > BOUND_S:
            self._stuck(f"{what}: nothing moved for {BOUND_S:g} s")
            self._seen[what] = (value, now)

    def _stuck(self, text: str) -> None:
        self.result.stuck.append(text)
        self._say(f"STUCK: {text}")

    def _live_at(self, url: str, model: str) -> int:
        try:
            return self.stack.live(url, model)
        except ElasticCTRError:
            return 0

    def _newest(self, model: str) -> int:
        try:
            events = self.repository.events(model)
        except ElasticCTRError:
            return 0
        return max((event.version for event in events), default=0)

    # Clients

    def _start_clients(self) -> None:
        settings = {
            "repository": str(self.stack.repository),
            "log": str(self.root / "log" / "part-*"),
            "token": self.stack.token,
            "models": list(FLOWS),
            "first": {model: self._newest(model) for model in FLOWS},
            "shards": self.stack.addresses,
            "serve": [one.url for one in self.stack.serve],
            "grpc": [one.grpc for one in self.stack.serve],
        }
        self._clients = subprocess.Popen(
            [sys.executable, str(HERE / "chaos_clients.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._ask_clients(settings)

    def _ask_clients(self, message: Any) -> dict[str, Any]:
        assert self._clients is not None and self._clients.stdin is not None and self._clients.stdout is not None
        self._clients.stdin.write(json.dumps(message) + "\n")
        self._clients.stdin.flush()
        answer = self._clients.stdout.readline()
        if not answer:
            raise SystemExit(f"the clients ended with {self._clients.wait()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _stop_clients(self) -> None:
        found = self._ask_clients({"stop": True})
        for name, loop in found["loops"].items():
            self.result.failed += loop["failed"]
            self.result.wrong += loop["wrong"]
            self.result.notes += [f"{name}: {text}" for text in loop["messages"]]
            if not loop["asked"]:
                self._stuck(f"{name}: no request ended")
            print(
                f"  {name:<20}{loop['asked']:>8,} requests, {loop['failed']} failed, {loop['wrong']} wrong, "
                f"slowest {loop['slowest_s']:.1f} s"
            )
        print(f"  {found['versions']} versions answered", flush=True)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)

    def close(self) -> None:
        for pid in list(self._stopped):
            self._resume(pid)
        if self._clients is not None:
            self._clients.kill()
            self._clients.wait()
        for flow in self.flows:
            flow.kill()
        for pid in self._publishers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for one in self.stack.processes:
            one.kill()


def main() -> None:
    parser = measure.make_parser(__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="seed of the faults; default: random, printed")
    parser.add_argument("--minutes", type=float, help="how long faults occur; default: 60, with --quick 2")
    parser.add_argument("--keep", action="store_true", help="keep logs and repository")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    if arguments.minutes is not None:
        plan = Plan(arguments.minutes * 60, plan.every_s)
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {seed}" + (f", files in {root}" if arguments.keep else ""), flush=True)
    chaos = Chaos(root, plan, seed)
    try:
        result = chaos.run()
    finally:
        chaos.close()
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    for name, counts in (("kill -9", result.kills), ("SIGSTOP", result.stops)):
        print(f"{name}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    for text in (*result.crashed, *result.stuck, *result.notes):
        print(f"  {text}")
    measure.print_result(
        {
            "kills": result.kills.total(),
            "stops": result.stops.total(),
            "wrong": result.wrong,
            "lost": result.lost,
            "stuck": len(result.stuck),
            "failed_requests": result.failed,
            "crashed": len(result.crashed),
        },
        seed=seed,
    )


if __name__ == "__main__":
    main()
