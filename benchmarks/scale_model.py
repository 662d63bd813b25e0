"""Simulates, from measured costs, what 10, 100 and 1,000 trainers and a table of 1 TB would need.

Costs (CPU seconds of a trainer and of a pserver per batch, bytes on the wire, CPU seconds of the coordinator per chunk)
are taken from real runs on this machine. The simulation models machines with cores and network cards, the queues in
front of them, and the order of a trainer's work. It is checked against real runs with 1 to 4 trainers before it
extrapolates. Prints tables, then one line of JSON: `error` is the largest relative error of those checks.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import scale_real
from scale_real import Costs, Point

# The machines of the simulated cluster.
CORES = 32
NIC_BYTES_PER_S = 25e9 / 8
ROUND_TRIP_S = 100e-6
PSERVER_GIB = 384.0  # memory for rows
DISK_BYTES_PER_S = 1e9
TRAINER_CORES = 8.0  # a trainer's share of a machine: at best, its step is this many times faster than on one core
PARALLEL_PART = 0.9  # of a step

CHUNK_MIB = 32.0  # the default of a job
MOST_ERROR = 0.25  # of a simulated rate
TABLE_BYTES = 1e12
TRAINERS = (10, 100, 1000)
_EFFICIENT = 0.9  # of the rate of the same trainers if pservers took no time


class Station:
    """Servers with one queue, first come first served. Calls must come in the order of arrival."""

    def __init__(self, servers: int) -> None:
        self._free = [0.0] * servers
        self.busy_s = 0.0

    def serve(self, arrival_s: float, work_s: float) -> float:
        """When it is done."""
        at = min(range(len(self._free)), key=self._free.__getitem__)
        done = max(arrival_s, self._free[at]) + work_s
        self._free[at] = done
        self.busy_s += work_s
        return done


@dataclass(frozen=True)
class Cluster:
    """The simulated cluster. With `is_one_machine` all processes share `cores`; otherwise each has its own machine."""

    trainers: int
    pservers: int
    costs: Costs
    cores: int = CORES
    is_one_machine: bool = False
    staleness: int = 2


@dataclass(frozen=True)
class Outcome:
    samples_per_s: float
    pserver_busy: float  # of its cores
    nic_busy: float  # of a pserver's network card
    coordinator_busy: float  # of one core, with chunks of CHUNK_MIB


class Simulation:
    """Async training: a trainer fetches the next batch's rows while it computes, and waits for a push only when
    `staleness` of them are in flight.

    Every trainer asks every pserver for each batch, so all pservers have the same load: up to eight of them are
    simulated, each with its full load, and the slowest answer of the eight stands for the slowest of all.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        costs = cluster.costs
        self._shown = min(cluster.pservers, 8)
        shared = Station(cluster.cores) if cluster.is_one_machine else None
        self._pservers = [shared or Station(cluster.cores) for _ in range(self._shown)]
        self._nics = [Station(1) for _ in range(self._shown)]
        self._machine = shared
        self._fetch_s = costs.pserver_s * costs.fetch_part / cluster.pservers + costs.request_s
        self._push_s = costs.pserver_s * (1 - costs.fetch_part) / cluster.pservers + costs.request_s
        self._bytes = costs.bytes_per_batch / cluster.pservers / 2
        self._trip_s = 20e-6 if cluster.is_one_machine else ROUND_TRIP_S
        # On its own machine a trainer does not wait for a core that others use.
        self._wait_s = costs.wait_s + (costs.queued_s if cluster.is_one_machine else 0.0)
        # Other work of the machine: reading and sockets of trainers, the coordinator.
        chunks = costs.batch / (costs.samples_per_mib * scale_real.CHUNK_MIB)
        self._beside_s = costs.trainer_s - costs.main_s + chunks * costs.coordinator_s

    def _ask(self, now_s: float, work_s: float) -> float:
        """The time at which the last pserver has answered."""
        last = now_s
        for pserver, nic in zip(self._pservers, self._nics, strict=True):
            arrived = now_s + self._trip_s / 2
            if not self._cluster.is_one_machine:
                arrived = nic.serve(arrived, self._bytes / NIC_BYTES_PER_S)
            last = max(last, pserver.serve(arrived, work_s) + self._trip_s / 2)
        return last

    def run(self, batches: int) -> Outcome:
        """`batches` of every trainer, the first fifth not counted."""
        cluster, costs = self._cluster, self._cluster.costs
        # Trainers start at different times. An event: time, trainer, and whether its gradients are computed.
        events = [(costs.main_s * i / cluster.trainers, i, False) for i in range(cluster.trainers)]
        heapq.heapify(events)
        fetched = [0.0] * cluster.trainers
        pushes: list[list[float]] = [[] for _ in range(cluster.trainers)]
        left = [batches] * cluster.trainers
        skipped, began_s, busy_s, nic_s = batches // 5 * cluster.trainers, 0.0, 0.0, 0.0
        total, now_s = 0, 0.0
        while events:
            now_s, i, is_computed = heapq.heappop(events)
            if not is_computed:
                fetched[i] = self._ask(now_s, self._fetch_s)  # of the next batch
                computed = now_s + costs.main_s
                if self._machine is not None:
                    computed = self._machine.serve(now_s, costs.main_s)
                    self._machine.serve(now_s, self._beside_s)
                heapq.heappush(events, (computed, i, True))
                continue
            pushes[i] = sorted(t for t in pushes[i] if t > now_s)
            if len(pushes[i]) > cluster.staleness:
                heapq.heappush(events, (pushes[i][-cluster.staleness - 1], i, True))
                continue
            pushes[i].append(self._ask(now_s, self._push_s))
            total += 1
            left[i] -= 1
            if total == skipped:
                began_s, busy_s, nic_s = now_s, self._pservers[0].busy_s, self._nics[0].busy_s
            if left[i]:
                heapq.heappush(events, (max(now_s + self._wait_s, fetched[i]), i, False))
        seconds = max(now_s - began_s, 1e-9)
        rate = (total - skipped) * costs.batch / seconds
        return Outcome(
            rate,
            (self._pservers[0].busy_s - busy_s) / seconds / cluster.cores,
            (self._nics[0].busy_s - nic_s) / seconds,
            rate / (costs.samples_per_mib * CHUNK_MIB) * costs.coordinator_s,
        )


def on_more_cores(costs: Costs) -> Costs:
    """A trainer of TRAINER_CORES: its step is faster, limited by the work of all its threads."""
    step_s = costs.main_s * (1 - PARALLEL_PART + PARALLEL_PART / TRAINER_CORES)
    return replace(costs, main_s=max(step_s, costs.trainer_s / TRAINER_CORES))


def check(points: list[Point], cores: int) -> float:
    """Prints real and simulated rates. Returns the largest relative error, except of the point that gave the costs."""
    print(f"\nchecked on this machine, {cores} cores shared by all processes")
    print("  trainers  pservers   real samples/s   simulated    error")
    worst = 0.0
    for point in points:
        cluster = Cluster(point.trainers, point.pservers, points[0].costs, cores, is_one_machine=True)
        simulated = Simulation(cluster).run(400).samples_per_s
        error = simulated / point.samples_per_s - 1
        if point is not points[0]:
            worst = max(worst, abs(error))
        print(f"  {point.trainers:8} {point.pservers:9} {point.samples_per_s:16,.0f} {simulated:11,.0f} {error:8.1%}")
    verdict = "within" if worst <= MOST_ERROR else "NOT within"
    print("  costs and waits are those of the first;", end=" ")
    print(f"largest error of the others {worst:.1%}, {verdict} the {MOST_ERROR:.0%} allowed")
    return worst


def ask(costs: Costs) -> dict[str, float]:
    """How many pservers each number of trainers needs, and what saturates first."""
    there = on_more_cores(costs)
    print(f"\na cluster of machines with {CORES} cores, {NIC_BYTES_PER_S * 8 / 1e9:.0f} Gbit/s and", end=" ")
    print(
        f"{ROUND_TRIP_S * 1e6:.0f} us between them; a trainer has {TRAINER_CORES:.0f} cores, batches of {costs.batch}"
    )
    print(
        "  trainers   pservers for 90 %     samples/s   pserver CPU   pserver network   chunks for half a coordinator"
    )
    result: dict[str, float] = {}
    for trainers in TRAINERS:
        ideal = trainers * costs.batch / (there.main_s + there.wait_s)
        pservers, outcome = 1, Outcome(0, 0, 0, 0)
        while pservers <= 1024:
            outcome = Simulation(Cluster(trainers, pservers, there)).run(max(4000 // trainers, 20))
            if outcome.samples_per_s >= _EFFICIENT * ideal:
                break
            pservers = max(pservers + 1, int(pservers * 1.3))
        is_enough = outcome.samples_per_s >= _EFFICIENT * ideal
        result |= {f"pservers_{trainers}": float(pservers), f"samples_per_s_{trainers}": outcome.samples_per_s}
        result[f"chunk_mib_{trainers}"] = max(CHUNK_MIB, 2 * CHUNK_MIB * outcome.coordinator_busy)
        print(
            f"  {trainers:8} {pservers if is_enough else 'not reached':>19} {outcome.samples_per_s:13,.0f}"
            f" {outcome.pserver_busy:13.1%} {outcome.nic_busy:17.1%} {result[f'chunk_mib_{trainers}']:20,.0f} MiB"
        )
    return result


def saturate(costs: Costs, pservers: int) -> float:
    """Prints how the rate grows with trainers on a fixed number of pservers; the trainers at which it stops."""
    there = on_more_cores(costs)
    print(f"\nwhere {pservers} pservers saturate")
    print("  trainers     samples/s   of linear   pserver CPU   pserver network")
    knee = 0.0
    for trainers in (1, 4, 16, 64, 256, 1024):
        outcome = Simulation(Cluster(trainers, pservers, there)).run(max(4000 // trainers, 20))
        share = outcome.samples_per_s / (trainers * costs.batch / (there.main_s + there.wait_s))
        print(
            f"  {trainers:8} {outcome.samples_per_s:13,.0f} {share:11.1%} {outcome.pserver_busy:13.1%}"
            f" {outcome.nic_busy:17.1%}"
        )
        if share >= _EFFICIENT:
            knee = trainers
    return knee


def hold(costs: Costs) -> dict[str, float]:
    """The memory for a table of 1 TB, and the time of its checkpoints."""
    rows = TABLE_BYTES / costs.row_bytes
    memory = rows * costs.bytes_per_row_in_memory
    pservers = -(-memory // (PSERVER_GIB * 2**30))
    save_s = TABLE_BYTES / pservers / DISK_BYTES_PER_S
    print(f"\na table of 1 TB: {rows / 1e9:.1f} billion rows of {costs.row_bytes:.0f} bytes, with its index", end=" ")
    print(
        f"{memory / 2**40:.2f} TiB of memory: {pservers:.0f} pservers of {PSERVER_GIB:.0f} GiB, twice that with standby"
    )
    print(f"a checkpoint takes {save_s:,.0f} s at {DISK_BYTES_PER_S / 1e9:.0f} GB/s each, while training continues")
    return {"pservers_1tb": pservers, "checkpoint_1tb_s": save_s}


def main() -> None:
    is_quick = measure.parse_arguments(__doc__ or "").quick
    os.environ["OMP_NUM_THREADS"] = "1"
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        points = scale_real.measure(Path(name), is_quick=is_quick)
    costs = points[0].costs
    print(f"measured with 1 trainer and 1 pserver, batches of {costs.batch}: {costs.describe()}")
    error = check(points, cores)
    result = {"error": error, "is_error_within_bound": float(error <= MOST_ERROR)}
    result |= ask(costs)
    result["trainers_per_8_pservers"] = saturate(costs, 8)
    result |= hold(costs)
    measure.print_result(result)


if __name__ == "__main__":
    main()
