"""What clients notice while versions are swapped, and how soon a row pushed in the trainer is served.

Real processes on this machine: two shards, an agent beside each, a transfer, a client that sends lookups at a constant
rate and checks every row against the version its answer names, and `elasticctr cube bench`, which measures latencies.
Bases and deltas are published one after another and rolled out by transfer. For the last figure rows are pushed into a
trainer's table and published as a delta; the clock runs from before the push until a lookup returns the new row.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.harness import wait_until
from tests.cluster.story import Story
from tests.cluster.truth import MODEL, TABLE

from measure import parse_arguments, print_result

RATE, KEYS = 200, 100
LATER = ("nice", "-n", "10")  # for processes that would run on other machines
TRIES = 3


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0])
    visible = see_pushed_rows(TRIES if arguments.quick else 3 * TRIES)
    result = swap(4, 20, 50_000, 5.0) if arguments.quick else swap(20, 100, 200_000, 15.0)
    print_result({**result, **visible})


def swap(bases: int, deltas: int, count: int, quiet_s: float) -> dict[str, float]:
    """Rolls out `deltas` spread over `bases`, under load."""
    with tempfile.TemporaryDirectory(prefix="cube-swap-") as root, Story(Path(root), count=count, poll_s=0.05) as story:
        _start(story)
        story.base()
        story.wait_live(1)
        story.start_load(RATE, KEYS, prefix=LATER)
        assert story.load is not None
        time.sleep(3.0)  # past its start
        before = Probe(story, Path(root), quiet_s).wait()
        probe = Probe(story, Path(root), 3600)
        os.nice(10)  # this process publishes
        live_s = []
        for number in range(bases + deltas):
            started = time.perf_counter()
            version = story.base() if number % (1 + deltas // bases) == 0 else story.delta()
            story.wait_live(version)
            live_s.append(time.perf_counter() - started)
        during = probe.stop()
        report = story.load.stop()
        errors = report.errors + sum(before["errors"].values()) + sum(during["errors"].values())
        print(
            f"{bases} bases of {count:,} rows and {deltas} deltas of a tenth of it, {RATE} lookups/s of {KEYS} feasigns"
        )
        print(
            f"published to live on all servers: median {statistics.median(live_s):.2f} s, longest {max(live_s):.2f} s"
        )
        print(
            f"requests {report.requests:,}, rows checked {report.rows:,}, {len(set(report.versions))} versions answered"
        )
        print(f"errors {errors}, mixed {report.mixed}, wrong rows {report.wrong}")
        for message in report.messages[:5]:
            print(f"  {message}")
        for name, found in (("before", before), ("during", during)):
            p50, p99, most = (found[key] / 1000 for key in ("p50_us", "p99_us", "max_us"))
            print(f"latency {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {most:.0f} ms, {found['calls']:,} lookups")
        return {
            "errors": errors,
            "mixed": report.mixed,
            "wrong_rows": report.wrong,
            "p99_ratio": during["p99_us"] / before["p99_us"],
            "publish_live_s": statistics.median(live_s),
        }


class Probe:
    """`cube bench` at the constant rate, in a separate process: its native threads do not wait for Python."""

    def __init__(self, story: Story, root: Path, seconds: float) -> None:
        keys = root / "keys"
        keys.write_text("\n".join(map(str, story.truth.feasigns)))
        at = ";".join(",".join(shard) for shard in story.addresses())
        command = [sys.executable, "-m", "elasticctr", "cube", "bench", f"{MODEL}/{TABLE}", "--endpoint", at, "--json"]
        command += ["--keys", str(keys), "--token-file", str(story.cluster.token_file), "--batch", str(KEYS)]
        command += ["--rate", str(RATE), "--seconds", str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> dict[str, Any]:
        out, _ = self._process.communicate(timeout=120)
        found: dict[str, Any] = json.loads(out)
        return found

    def stop(self) -> dict[str, Any]:
        self._process.send_signal(signal.SIGINT)
        return self.wait()


def _start(story: Story) -> None:
    """Starts servers first; agents and transfer have lower priority than servers and clients."""
    for instance in story.cluster.instances:
        instance.start_server()
        instance.prefix = LATER
        instance.start_agent()
    for instance in story.cluster.instances:
        for process, url in ((instance.server, instance.server_url), (instance.agent, instance.agent_url)):
            wait_until(partial(story.cluster.answers, process, url), url)
    story.cluster.start_transfer(prefix=LATER)


def see_pushed_rows(tries: int) -> dict[str, float]:
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from cube_swap_trainer import Trainer

    with tempfile.TemporaryDirectory(prefix="cube-seen-") as root, Story(Path(root), poll_s=0.05) as story:
        story.cluster.start()
        trainer = Trainer(str(story.cluster.repository))
        story.wait_live(trainer.publish())
        seen_s = []
        with story.client() as client:
            for _ in range(tries):
                started = time.perf_counter()
                feasign, pushed_rows = trainer.push()
                pushed_s = time.perf_counter() - started
                version = trainer.publish()
                published_s = time.perf_counter() - started
                while True:
                    answer = client.get(trainer.table, [feasign])
                    if answer.version == version:
                        break
                    time.sleep(0.002)
                seen_s.append(time.perf_counter() - started)
                trainer.check(feasign, answer)
                print(
                    f"{pushed_rows:,} rows pushed after {pushed_s:.2f} s, published after {published_s:.2f} s, "
                    f"served after {seen_s[-1]:.2f} s"
                )
    return {"delta_visible_s": statistics.median(seen_s)}


if __name__ == "__main__":
    main()
