"""Activations and rollbacks under a fixed load: failed and mixed answers, and the effect on latency.

usage: python benchmarks/predict_swap.py [--quick]

One `elasticctr serve` with rows in its own memory. Load at a constant rate checks every score of every answer against
the version it names: a score from another version's rows or graph is `mixed`. A probe in a separate process also sends
requests at a constant rate and measures latencies. Bases and deltas are published one after another; rollbacks are
commands to the server. For lack of a second machine, publishing runs on the same one at a lower priority.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored

from elasticctr.versions.repository import Repository
from measure import parse_arguments, print_result
from predict_probe import Probe

RATE, CANDIDATES = 200, 10
ACTIVATIONS, ROLLBACKS = 20, 5


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0])
    print_result(swap(50_000, 8.0) if arguments.quick else swap(500_000, 20.0))


def swap(count: int, quiet_s: float) -> dict[str, float]:
    """Swaps versions of `count` rows; measures latencies for `quiet_s` before, and during all changes."""
    with tempfile.TemporaryDirectory(prefix="predict-swap-") as root:
        scored = Scored(Repository(str(Path(root) / "repo")), count=count)
        scored.base()
        with Predictor(Path(root), scored) as predictor:
            predictor.start()
            predictor.wait_live(1)
            body = Path(root) / "body.json"
            samples = [sample.json() for sample in scored.draw(np.random.default_rng(9), CANDIDATES)]
            body.write_text(json.dumps({"samples": samples, "values": "feasigns"}))
            with predictor.load(rate=RATE, candidates=CANDIDATES) as load:
                time.sleep(2.0)  # past their start
                before = Probe(predictor.port, body, RATE, quiet_s).wait()
                probe = Probe(predictor.port, body, RATE, 3600)
                os.nice(10)  # this process publishes
                live_s, back_s = change(predictor, scored)
                during = probe.stop()
            found = load.answered
    failed = found.failed + before["failed"] + during["failed"]
    print(f"{ACTIVATIONS} activations, {ROLLBACKS} rollbacks; {count:,} rows, a delta changes a tenth of them")
    print(f"{2 * RATE} requests/s of {CANDIDATES} candidates, half of them judged score by score")
    print(f"published to answering: median {statistics.median(live_s):.2f} s, longest {max(live_s):.2f} s")
    print(
        f"rollback to answering: median {1000 * statistics.median(back_s):.1f} ms, longest {1000 * max(back_s):.1f} ms"
    )
    print(f"judged {found.requests:,} answers of {len(found.versions)} versions: failed {failed}, mixed {found.mixed}")
    for message in found.messages[:5]:
        print(f"  {message}")
    for name, one in (("before", before), ("during", during)):
        print(f"latency {name}: p50 {one['p50_ms']:.2f} ms, p99 {one['p99_ms']:.2f} ms, p99.9 {one['p999_ms']:.2f} ms, "
              f"max {one['max_ms']:.1f} ms, {one['requests']:,} requests")  # fmt: skip
    return {
        "failed": failed,
        "mixed": found.mixed,
        "p99_ratio": during["p99_ms"] / before["p99_ms"],
        "activation_s": statistics.median(live_s),
        "rollback_ms": 1000 * statistics.median(back_s),
    }


def change(predictor: Predictor, scored: Scored) -> tuple[list[float], list[float]]:
    """Publishes and rolls back in turn. Returns the seconds until each version answered."""
    live_s, back_s = [], []
    for number in range(ACTIVATIONS):
        started = time.perf_counter()
        predictor.wait_live(scored.base() if number % 5 == 0 else scored.delta())
        live_s.append(time.perf_counter() - started)
        if number % (ACTIVATIONS // ROLLBACKS) == 1:
            before = predictor.status()["live"]
            started = time.perf_counter()
            status = predictor.command("rollback")
            back_s.append(time.perf_counter() - started)
            if status["live"] == before:
                raise SystemExit(f"the rollback was not immediate: {status}")
            time.sleep(0.2)
            predictor.command("resume")
            predictor.wait_live(before)
    return live_s, back_s


if __name__ == "__main__":
    main()
