"""What honest clients notice while every port is attacked, and what attacks cost the servers in memory and CPU.

Real processes on loopback: a prediction server (HTTP, gRPC, bRPC), a cube server (wire, Redis, HTTP), its agent,
transfer, a coordinator and a pserver, all with a token. Honest clients send requests to each of them all the time, from
separate processes: first undisturbed, then under one attack after another (abuse_attacks.py), then undisturbed again.

Attackers have the lowest priority and a fixed rate: this measures how the servers defend themselves, not how two cores
are shared. No attack may fail an honest request or take more of a server's memory than its limits allow.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import measure
import protocols
from elasticctr import _native
from elasticctr.data.dataset import Dataset
from elasticctr.train.job import load_job
from elasticctr.versions.repository import Repository
from stack import Process, Stack, free_port, make_log, run_command, wait_until

HERE = Path(__file__).resolve().parent
MODEL, ROWS = "ctr", 4000
BUFFERED_MIB = 64  # limit set for cube server and pserver
# How much a process may grow under attack. Cube server and pserver: --max-buffered; prediction server: its 1 GiB of
# requests and answers; the control ports: bodies of 1 MiB on at most some hundred connections.
BUDGET_MIB = {
    "serve": 1024,
    "cube": BUFFERED_MIB,
    "pserver": BUFFERED_MIB,
    "agent": 64,
    "transfer": 64,
    "coordinator": 64,
}
SLACK_MIB = 48  # of allocators and of Python


@dataclass(frozen=True)
class Plan:
    quiet_s: float
    attack_s: float


QUICK, FULL = Plan(4.0, 1.5), Plan(20.0, 20.0)
CALM_S = 60.0  # time after an attack until honest clients are answered again; failures in it count


class Children:
    """The honest clients: a process for each group of loops."""

    def __init__(self, groups: list[list[dict[str, Any]]]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "abuse_clients.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in groups
        ]
        for process, group in zip(self._processes, groups, strict=True):
            self._ask(process, group)

    def phase(self, name: str) -> None:
        for process in self._processes:
            self._ask(process, {"phase": name})

    def wait_calm(self) -> bool:
        """Waits until every loop is answered at once and without failure."""
        deadline = time.monotonic() + CALM_S
        while time.monotonic() < deadline:
            if all(self._ask(process, {"calm": True}) for process in self._processes):
                return True
            time.sleep(0.1)
        return False

    def finish(self) -> dict[str, Any]:
        """Per loop: latencies and failures by phase."""
        found: dict[str, Any] = {}
        for process in self._processes:
            found |= self._ask(process, {"stop": True})
        return found

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _ask(self, process: subprocess.Popen[str], value: Any) -> Any:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(value) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit(f"the honest clients exited with status {process.wait()}")
        return json.loads(answer)


@dataclass
class Cost:
    """What one attack did to the processes."""

    attack: str
    cpu_s: dict[str, float] = field(default_factory=dict)
    grown_mib: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    calm_s: float = 0.0  # from its end until all clients were answered again

    @property
    def over_budget(self) -> list[str]:
        return [name for name, mib in self.grown_mib.items() if mib > BUDGET_MIB[name] + SLACK_MIB]


class Arena:
    """The processes under attack."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stack = Stack(root, models=[MODEL], is_cube=False, max_buffered_mib=BUFFERED_MIB)
        self.extra: dict[str, Process] = {}
        log = root / "log"
        make_log(log, ROWS)
        self.job_file = root / "job.yaml"
        job: dict[str, Any] = {
            "run_dir": str(root / "run"),
            "schema": str(log / "schema.yaml"),
            "data": {"train": {"path": str(log / "part-*")}},
            "model": {"name": "wide_deep", "dim": 8, "hidden": [32, 16]},
            "train": {"batch_size": 256, "threads": 1},
        }
        self.job_file.write_text(yaml.safe_dump(job))
        self.cluster_file = root / "cluster.yaml"
        job |= {"run_dir": str(root / "cluster"), "cluster": {"trainers": 1, "pservers": 1}}
        self.cluster_file.write_text(yaml.safe_dump(job))

    def start(self) -> None:
        run_command("train", str(self.job_file))
        run_command("publish", str(self.root / "run"), "--repo", str(self.stack.repository), "--model", MODEL)
        job = ["--config", str(self.cluster_file)]
        coordinator = self.stack.run("coordinator", ["coordinator", *job], free_port())
        self.extra["coordinator"] = coordinator
        self.stack.start()
        coordinator.start()
        coordinator.wait_ready()
        limit = ["--max-buffered", str(BUFFERED_MIB)]
        finding = ["--coordinator", coordinator.url, "--shard", "0", "--host", "127.0.0.1"]
        pserver = self.stack.run("pserver", ["pserver", *job, *finding, *limit], free_port())
        self.extra["pserver"] = pserver
        pserver.start()
        self.stack.wait_live(MODEL, 1)
        port = int(pserver.url.rpartition(":")[2])
        wait_until(lambda: _is_open(port), "pserver listens")

    @property
    def processes(self) -> dict[str, Process]:
        stack = self.stack
        found = {
            "serve": stack.serve[0],
            "cube": stack.cube[0][0],
            "agent": stack.agents[0],
            "transfer": stack.transfer,
        }
        return found | self.extra

    def ports(self) -> dict[str, int]:
        found = {name: int(one.url.rpartition(":")[2]) for name, one in self.processes.items()}
        return found | {"grpc": int(self.stack.serve[0].grpc.rpartition(":")[2])}

    def close(self) -> None:
        for one in self.extra.values():
            one.kill()
        for one in self.stack.processes:
            one.kill()

    # What is asked and what is attacked with

    def clients(self, samples: protocols.Samples, table: str, keys: list[int]) -> list[list[dict[str, Any]]]:
        token, ports = self.stack.token, self.ports()

        def loop(name: str, port: str, protocol: str, request: bytes = b"") -> dict[str, Any]:
            address = f"127.0.0.1:{ports[port]}"
            return {"name": name, "protocol": protocol, "address": address, "token": token, "request": request.hex()}

        def status(port: str) -> dict[str, Any]:
            return loop(port, port, "http", protocols.http_request("GET", "/v1/status", b"", token))

        predict = protocols.http_request("POST", f"/v1/models/{MODEL}:predict", protocols.predict_json(samples), token)
        feasigns = np.array(keys[:50], "<u8").tobytes()
        lookup = protocols.wire_frame(protocols.LOOKUP, feasigns, _native.xxh64(table.encode()))
        seek = json.dumps({"keys": keys[:50], "version_required": True}).encode()
        http = protocols.http_request("POST", f"/DictService/seek?table={table}", seek, token)
        mget = protocols.redis_command("MGET", *(f"{table}:{key}" for key in keys[:50]))
        return [
            [
                loop("serve http", "serve", "http", predict),
                loop("serve brpc", "serve", "brpc", protocols.brpc_call(MODEL, samples, 1, token)),
                loop("serve grpc", "grpc", "grpc", protocols.infer_message(MODEL, samples)),
            ],
            [
                loop("cube wire", "cube", "wire", lookup),
                loop("cube redis", "cube", "redis", mget),
                loop("cube http", "cube", "http", http),
            ],
            [status("agent"), status("transfer"), status("coordinator"), loop("pserver", "pserver", "frames")],
        ]


def _is_open(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def attack_all(arena: Arena, honest: Children, plan: Plan, only: list[str]) -> list[Cost]:
    batch = next(iter(Dataset(str(arena.root / "log" / "part-*"), load_job(arena.job_file).samples)))
    table = table_name(arena)
    attackers = measure.Peer(Path(sys.executable), HERE / "abuse_attacks.py")
    field_ = {
        "ports": arena.ports(),
        "token": arena.stack.token,
        "table": _native.xxh64(table.encode()),
        "table_name": table,
        "keys": sorted({int(v) for v in batch.values})[:500],
    }
    costs = []
    try:
        attacks = attackers.ask(json.dumps(field_))
        for name, _, _ in attacks:
            if only and not any(word in name for word in only):
                continue
            costs.append(attack_once(arena, honest, attackers, name, plan))
    finally:
        attackers.close()
    return costs


def attack_once(arena: Arena, honest: Children, attackers: measure.Peer, name: str, plan: Plan) -> Cost:
    cost = Cost(name)
    before = {}
    for key, one in arena.processes.items():
        one.reset_peak()
        before[key] = (one.cpu_s(), one.rss_mib())
    honest.phase(name)
    cost.sent = attackers.ask(json.dumps({"attack": name, "seconds": plan.attack_s}))
    ended = time.monotonic()
    honest.wait_calm()
    cost.calm_s = time.monotonic() - ended
    honest.phase("between")
    for key, one in arena.processes.items():
        if not one.is_running:
            cost.ended.append(key)
            one.start()
            continue
        cost.cpu_s[key] = one.cpu_s() - before[key][0]
        cost.grown_mib[key] = one.rss_mib(peak=True) - before[key][1]
    return cost


def table_name(arena: Arena) -> str:
    (manifest,) = Repository(str(arena.stack.repository)).versions(MODEL)
    return f"{MODEL}/{next(iter(manifest.tables))}"


def p99_ms(found: dict[str, Any], loop: str, *phases: str) -> float:
    latencies = [value for phase in phases for value in found[loop]["latencies"].get(phase, [])]
    return float(np.percentile(latencies, 99)) * 1000 if latencies else float("nan")


def report(found: dict[str, Any], costs: list[Cost]) -> dict[str, Any]:
    """Prints a table and returns the figures."""
    details: dict[str, Any] = {}
    quiet = {loop: p99_ms(found, loop, "quiet before", "quiet after") for loop in found}
    print("\nundisturbed, p99 in ms: " + ", ".join(f"{loop} {ms:.1f}" for loop, ms in quiet.items()))
    print(f"{'attack':<36}{'failed':>7}{'p99 x':>7} {'of':<13}{'CPU s':>7} {'MiB grown':>10}  worst of them")
    for cost in costs:
        ratios = {loop: p99_ms(found, loop, cost.attack) / quiet[loop] for loop in found}
        worst = max(ratios, key=lambda loop: ratios[loop])
        failures = {loop: messages for loop in found if (messages := found[loop]["failed"].get(cost.attack))}
        failed = sum(map(len, failures.values()))
        hungry = max(cost.cpu_s, key=lambda name: cost.cpu_s[name], default="")
        grown = max(cost.grown_mib, key=lambda name: cost.grown_mib[name] / BUDGET_MIB[name], default="")
        print(
            f"{cost.attack:<36}{failed:>7}{ratios[worst]:>7.1f} {worst:<13}{sum(cost.cpu_s.values()):>7.2f} "
            f"{cost.grown_mib.get(grown, 0):>10.0f}  CPU: {hungry}, memory: {grown}"
            + (f"; calm after {cost.calm_s:.0f} s" if cost.calm_s > 2 else "")
            + (f"; OVER BUDGET: {', '.join(cost.over_budget)}" if cost.over_budget else "")
            + (f"; ENDED: {', '.join(cost.ended)}" if cost.ended else "")
        )
        for loop, messages in failures.items():
            print(f"    {loop}: {len(messages)} failed, first: {messages[0]}")
        details[cost.attack] = {
            "failed": {loop: len(messages) for loop, messages in failures.items()},
            "p99_ratio": {loop: round(ratio, 2) for loop, ratio in ratios.items()},
            "cpu_s": {name: round(s, 2) for name, s in cost.cpu_s.items()},
            "grown_mib": {name: round(mib, 1) for name, mib in cost.grown_mib.items()},
            "over_budget": cost.over_budget,
            "ended": cost.ended,
            "calm_s": round(cost.calm_s, 1),
            "sent": cost.sent,
        }
    return details


def main() -> None:
    parser = measure.make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", default=[], help="run only attacks whose name contains this; may be repeated"
    )
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    root = Path(tempfile.mkdtemp(prefix="abuse-"))
    arena = Arena(root)
    honest: Children | None = None
    try:
        arena.start()
        batch = next(iter(Dataset(str(root / "log" / "part-*"), load_job(arena.job_file).samples)))
        keys = sorted({int(v) for v in batch.values})
        honest = Children(arena.clients(protocols.samples_of(batch, 0, 5), table_name(arena), keys))
        time.sleep(1.0)  # for all first connections
        honest.phase("quiet before")
        time.sleep(plan.quiet_s)
        costs = attack_all(arena, honest, plan, arguments.only)
        honest.phase("quiet after")
        time.sleep(plan.quiet_s)
        honest.phase("over")
        found = honest.finish()
    finally:
        if honest is not None:
            honest.close()
        arena.close()
        shutil.rmtree(root, ignore_errors=True)
    details = report(found, costs)
    control = details.get("nothing", {}).get("p99_ratio", {})
    ratios = [r for name, one in details.items() if name != "nothing" for r in one["p99_ratio"].values()]
    phases = {phase for loop in found.values() for phase in loop["failed"]} - {"start", "over"}
    failed = sum(len(loop["failed"].get(phase, [])) for loop in found.values() for phase in phases)
    requests = sum(len(values) for loop in found.values() for values in loop["latencies"].values())
    figures = {
        "honest_failed": failed,
        "honest_requests": requests,
        "p99_ratio": max(ratios, default=0.0),
        "p99_ratio_control": max(control.values(), default=0.0),
        "over_budget": sum(len(cost.over_budget) for cost in costs),
        "ended": sum(len(cost.ended) for cost in costs),
    }
    measure.print_result(figures, attacks=details)


if __name__ == "__main__":
    main()
