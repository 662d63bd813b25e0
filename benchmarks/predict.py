"""`elasticctr serve` against common alternatives: the same graph in ONNX Runtime and the same rows in Redis behind
FastAPI, BentoML and Ray Serve; and against ONNX Runtime alone on prepared inputs (the limit).

PaddleRec's Wide & Deep with a million rows (contenders/predict_data.py), 1, 10, 100 and 500 candidates per request, the
same bodies for all. A server and everything it needs, including Redis, has core 0; the load generator
(contenders/http_load.cc) has core 1. Only one server runs at a time. Peers run in the better of two variants, and every
server with its best number of connections, found in a first try. Closed loop: as many requests as are answered. Fixed
rate: half of the best peer's maximum, with requests sent on schedule and latencies measured from then. Figures are
medians of interleaved rounds. First, all scores are checked against the version's own files.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np

import measure
from contenders.predict_data import FOLDER, SIZES, Reference, prepare, read_bodies
from contenders.predict_servers import (
    PEERS,
    LoadGenerator,
    Redis,
    Result,
    Server,
    has_environment,
    start_ours,
    start_peer,
)

OURS = "elasticctr"
CONNECTIONS = (4, 16, 64)
TRY_S = 1.0
LIMIT_ROUNDS = 5
CHECKED = 5  # requests of each size whose scores are compared
TOLERANCE = 1e-5
LIMIT = Path(__file__).resolve().parent / "contenders" / "predict_limit.py"


class Contest:
    def __init__(self, rounds: int, seconds: float, quick: bool) -> None:
        self.load = LoadGenerator()
        self.reference = Reference()
        self.rounds, self.seconds, self.quick = rounds, seconds, quick
        self.starts: dict[str, Callable[[], Server]] = {OURS: start_ours}
        self.connections: dict[tuple[str, int], int] = {}
        self.closed: dict[tuple[str, int], list[Result]] = {}
        self.fixed: dict[tuple[str, int], list[Result]] = {}
        self.limits: dict[int, list[float]] = {size: [] for size in SIZES}
        self.shares: dict[int, list[float]] = {size: [] for size in SIZES}  # ours over the limit, in turns with it

    def check(self, name: str, server: Server) -> None:
        """Waits for a server and compares its scores."""
        server.wait(read_bodies(1, 1)[0])
        worst = 0.0
        for size in SIZES:
            for request in read_bodies(size, CHECKED):
                got = np.array(server.ask(request), np.float32)
                worst = max(worst, float(np.abs(got - self.reference.scores(request)).max()))
        if not worst <= TOLERANCE:
            raise SystemExit(f"{name}: its scores are {worst:.3g} away from the version's")
        print(f"{name:>20}: scores within {worst:.1e} of the version's", flush=True)

    def try_out(self, name: str, start: Callable[[], Server]) -> dict[int, float]:
        """Requests per second by size, each with the best number of connections, which is kept for later."""
        best = {}
        with start() as server:
            self.check(name, server)
            for size in SIZES:
                if self.quick:
                    self.connections[name, size] = 16
                    best[size] = self.load.run(server, size, 16, 0, TRY_S).requests_s
                    continue
                speeds = {c: self.load.run(server, size, c, 0, TRY_S).requests_s for c in CONNECTIONS}
                self.connections[name, size] = max(speeds, key=lambda c: speeds[c])
                best[size] = max(speeds.values())
                tries = ", ".join(f"{c}: {speed:,.0f}" for c, speed in speeds.items())
                print(f"{name:>20} {size:>4} candidates, requests/s by connections: {tries}", flush=True)
        return best

    def enter_peer(self, name: str, redis: Redis) -> dict[int, float]:
        """Adds a peer in the better of its variants, judged over all sizes."""
        tried = {}
        for variant in PEERS[name][: 1 if self.quick else None]:
            full = f"{name} {variant}"
            tried[full] = self.try_out(full, partial(start_peer, name, variant, redis))
        # By the mean of logarithms, so that every size counts equally; almost 0 if nothing was answered in time.
        chosen = max(tried, key=lambda full: sum(math.log(max(speed, 0.01)) for speed in tried[full].values()))
        self.starts[chosen] = partial(start_peer, *chosen.split(), redis)
        return tried[chosen]

    def run_round(self, rates: dict[int, float]) -> None:
        for name, start in self.starts.items():
            with start() as server:
                server.wait(read_bodies(1, 1)[0])
                for size in SIZES:
                    connections = self.connections[name, size]
                    self.closed.setdefault((name, size), []).append(
                        self.load.run(server, size, connections, 0, self.seconds)
                    )
                    if size in rates:
                        self.fixed.setdefault((name, size), []).append(
                            self.load.run(server, size, 32, rates[size], self.seconds)
                        )

    def run_limits(self) -> None:
        """Runs ours and ONNX Runtime alone in turns, so that other load on the machine affects both."""
        with self.starts[OURS]() as server:
            server.wait(read_bodies(1, 1)[0])
            for size in SIZES * (1 if self.quick else LIMIT_ROUNDS):
                before = self.limit(size)
                ours = self.load.run(server, size, self.connections[OURS, size], 0, self.seconds).requests_s * size
                limit = (before + self.limit(size)) / 2
                self.limits[size].append(limit)
                self.shares[size].append(ours / limit)

    def limit(self, size: int) -> float:
        path = FOLDER / f"inputs-{size}.npz"
        np.savez(path, **self.reference.inputs(read_bodies(size, 1)))
        arguments = [sys.executable, str(LIMIT), str(FOLDER / "model.onnx"), str(path), str(self.seconds)]
        done = subprocess.run(["taskset", "-c", "0", *arguments], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def middle(self, results: list[Result], by: str) -> Result:
        return sorted(results, key=lambda r: float(getattr(r, by)))[len(results) // 2]


def run(contest: Contest, peers: list[str], redis: Redis | None) -> dict[str, float]:
    contest.try_out(OURS, start_ours)
    tried = [contest.enter_peer(name, redis) for name in peers if redis is not None]
    rates = {size: max(0.5 * max(speeds[size] for speeds in tried), 1.0) for size in SIZES} if tried else {}
    for _ in range(contest.rounds):
        contest.run_round(rates)
    contest.run_limits()
    closed = {key: contest.middle(results, "requests_s") for key, results in contest.closed.items()}
    fixed = {key: contest.middle(results, "p99_us") for key, results in contest.fixed.items()}
    figures: dict[str, float] = {}
    for size in SIZES:
        limit = statistics.median(contest.limits[size])
        print(f"\n{size} candidates per request; ONNX Runtime alone {limit:,.0f} predictions/s")
        for name in contest.starts:
            connections = contest.connections[name, size]
            print(f"{name:>20} closed loop, {connections:>2} connections: {closed[name, size].line(size)}")
            if failed := sum(result.failed for result in contest.closed[name, size]):
                print(f"{name:>20} refused or failed {failed:,} requests of the closed loop")
        for name in contest.starts if size in rates else ():
            print(f"{name:>20} at {rates[size]:,.1f} requests/s: {fixed[name, size].line(size)}")
        ours = closed[OURS, size].requests_s
        others = [closed[name, size].requests_s for name in contest.starts if name != OURS]
        figures[f"requests_s_{size}"] = ours
        figures[f"vs_onnxruntime_{size}"] = statistics.median(contest.shares[size])
        shares = ", ".join(f"{share:.2f}" for share in contest.shares[size])
        print(f"{OURS:>20} over ONNX Runtime alone, in turns with it: {shares}")
        if others:
            figures[f"vs_best_peer_{size}"] = ours / max(others)
            for part in ("p99", "p999"):
                least = min(getattr(fixed[name, size], f"{part}_us") for name in contest.starts if name != OURS)
                figures[f"{part}_ratio_{size}"] = getattr(fixed[OURS, size], f"{part}_us") / least
    mine = (result for at in (contest.closed, contest.fixed) for size in SIZES for result in at.get((OURS, size), ()))
    figures["failed"] = sum(result.failed for result in mine)
    return figures


def main() -> None:
    arguments = measure.parse_arguments("elasticctr serve against FastAPI, BentoML, Ray Serve and ONNX Runtime alone")
    prepare()
    peers = ["fastapi"] if arguments.quick else list(PEERS)
    if arguments.quick:
        peers = [name for name in peers if has_environment(name)]
    contest = Contest(1 if arguments.quick else 3, 0.7 if arguments.quick else 2.0, arguments.quick)
    with Redis() if peers else nullcontext() as redis:
        figures = run(contest, peers, redis)
    measure.print_result(figures)


if __name__ == "__main__":
    main()
