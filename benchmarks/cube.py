"""The cube server against Redis, and both against a hash map in the client's own process (the limit).

Each holds the same rows: random feasigns, rows of 40 and 256 bytes. The server is pinned to one core, the load
generator (contenders/kv_load.cc: one thread, epoll, pipelining, never sleeping, checks answers) to another. Redis runs
with keys of 8 bytes, MGET, no persistence, and io-threads if they help; our server answers the native protocol and, on
its Redis port, MGET of decimal keys. Throughput is each contestant's best over connections and pipelines, as the median
of interleaved rounds. Latency is measured at an offered load that Redis can sustain, with requests sent on schedule.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import measure
from contenders.kv_servers import CubeServer, HashMap, LoadGenerator, RedisServer, Result, Server, find_redis, make_rows

SHAPES_FULL = [(1, 1), (1, 16), (8, 1), (8, 8), (8, 32), (32, 1), (32, 8)]
TRY_S = 0.4
MAX_IN_FLIGHT = 1 << 20  # bytes of rows in flight, over all connections


def shapes_for(batch: int, row_bytes: int, quick: bool) -> list[tuple[int, int]]:
    """(connections, pipeline) worth trying: enough in flight to keep a server busy, without overflowing caches."""
    shapes = [(8, max(1, min(16, 800 // batch)))] if quick else SHAPES_FULL
    fits = [(c, p) for c, p in shapes if c * p * batch * row_bytes <= 4 * MAX_IN_FLIGHT]
    return list(dict.fromkeys(fits)) or [(1, 1)]


Run = Callable[[int, int, float], Result]


class Comparison:
    def __init__(self, load: LoadGenerator, rounds: int, seconds: float, quick: bool) -> None:
        self.load, self.rounds, self.seconds, self.quick = load, rounds, seconds, quick
        self.wrong = 0

    def best(self, contestants: dict[str, Run], shapes: list[tuple[int, int]]) -> dict[str, Result]:
        """Each contestant in the shape that was best for it in a first try: medians over interleaved rounds."""
        chosen = dict.fromkeys(contestants, shapes[0])
        if len(shapes) > 1:
            for name, run in contestants.items():
                speeds = {shape: run(*shape, TRY_S).keys_s for shape in shapes}
                chosen[name] = max(speeds, key=lambda shape: speeds[shape])
                tries = ", ".join(f"{c}x{p} {speed / 1e6:.2f}" for (c, p), speed in speeds.items())
                print(f"{'':>36} {name} by connections x pipeline: {tries} M keys/s", flush=True)
        results: dict[str, list[Result]] = {name: [] for name in contestants}
        for _ in range(self.rounds):
            for name, run in contestants.items():
                results[name].append(run(*chosen[name], self.seconds))
        self.wrong += sum(result.wrong for each in results.values() for result in each)
        return {name: sorted(each, key=lambda r: r.keys_s)[len(each) // 2] for name, each in results.items()}

    def throughput(
        self, cube: CubeServer, redis: RedisServer, keys: int, row: int, batch: int, kind: str
    ) -> dict[str, Result]:
        def run(server: Server, protocol: str) -> Run:
            return lambda c, p, s: self.load.run(server, protocol, keys, row, c, p, batch, kind, 0, s)

        contestants = {
            "cube": run(cube, "wire"),
            "redis": run(redis, "redis"),
            "cube redis": run(cube, "redis-decimal"),
        }
        best = self.best(contestants, shapes_for(batch, row, self.quick))
        for name, result in best.items():
            print(f"{keys:>10,} x {row:>3} B {kind:>7} batch {batch:>4} {name:>10}: {result.line()}", flush=True)
        return best

    def latency(
        self, cube: CubeServer, redis: RedisServer, keys: int, row: int, batch: int, rate: float
    ) -> dict[str, Result]:
        """Measures both at the same offered load, with 8 connections."""
        results: dict[str, list[Result]] = {"cube": [], "redis": []}
        for _ in range(self.rounds):
            for name, server, protocol in (("cube", cube, "wire"), ("redis", redis, "redis")):
                got = self.load.run(server, protocol, keys, row, 8, 1, batch, "uniform", rate, self.seconds)
                self.wrong += got.wrong
                results[name].append(got)
        middle = {name: sorted(r, key=lambda x: x.p99_us)[len(r) // 2] for name, r in results.items()}
        for name, result in middle.items():
            print(
                f"{keys:>10,} x {row:>3} B at {rate:,.0f} requests/s of {batch}, {name:>6}: {result.line()}", flush=True
            )
        return middle


def redis_benchmark(port: int, keys: int, arguments: list[str], requests: int, pipeline: int) -> float:
    """Requests per second as measured by redis-benchmark."""
    command = ["taskset", "-c", "1", shutil.which("redis-benchmark") or str(find_redis("redis-benchmark"))]
    command += [
        "-p",
        str(port),
        "-r",
        str(keys),
        "-n",
        str(requests),
        "-c",
        "8",
        "-P",
        str(pipeline),
        "--csv",
        *arguments,
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    return float(lines[-1].rsplit('","', 7)[1].strip('"'))


def compare_by_redis_benchmark(load: LoadGenerator, keys: int, row: int, quick: bool) -> float:
    """Ours over Redis' under redis-benchmark: GET in pipelines and MGET of 26 and 100; the least of the medians."""
    ratios = []
    data = make_rows(keys, row, small=True)
    with CubeServer(data) as cube, RedisServer(load, keys, row, small=True) as redis:
        for count, pipeline in ((1, 16), (26, 8), (100, 4)):
            arguments = [*("GET" if count == 1 else "MGET").split(), *["__rand_int__"] * count]
            requests = (400_000 if quick else 4_000_000) // (count + 4)
            got: dict[int, list[float]] = {cube.port: [], redis.port: []}
            for _ in range(3):
                for port, rates in got.items():
                    rates.append(redis_benchmark(port, keys, arguments, requests, pipeline))
            ours, theirs = (statistics.median(rates) for rates in got.values())
            ratios.append(ours / theirs)
            shown = f"cube {ours:,.0f}, Redis {theirs:,.0f} requests/s: {ours / theirs:.2f}"
            print(f"redis-benchmark {arguments[0]} of {count}, -P {pipeline}: {shown}", flush=True)
    return min(ratios)


def choose_io_threads(comparison: Comparison, keys: int, row: int) -> int:
    """Redis' best number of io-threads, on its one core."""
    speeds = {}
    for threads in (1, 2):
        with RedisServer(comparison.load, keys, row, threads) as redis:
            got = comparison.load.run(redis, "redis", keys, row, 8, 8, 100, "uniform", 0, comparison.seconds)
            speeds[threads] = got.keys_s
        print(f"Redis with io-threads {threads}: {speeds[threads] / 1e6:.2f} M keys/s at batch 100", flush=True)
    return max(speeds, key=lambda threads: speeds[threads])


def run_size(
    keys: int, row: int, comparison: Comparison, io_threads: int, quick: bool, result: dict[str, float]
) -> None:
    data = make_rows(keys, row)
    batches = [26, 100, 1000] if quick else [1, 26, 100, 1000]
    is_main = row == 40 and keys == 1_000_000
    with CubeServer(data) as cube, RedisServer(comparison.load, keys, row, io_threads) as redis:
        cube_bytes, redis_bytes = cube.memory_bytes() / keys - row, redis.memory_bytes() / keys - row
        print(f"{keys:>10,} x {row:>3} B: {cube_bytes:.1f} bytes per key above the row, Redis {redis_bytes:.1f}; "
              f"RSS {cube.rss_mib():,.0f} MiB, Redis {redis.rss_mib():,.0f} MiB")  # fmt: skip
        result[f"rss_vs_redis_{row}b_{keys // 1_000_000}m"] = cube.rss_mib() / redis.rss_mib()
        if is_main:
            result["overhead_bytes_per_key"], result["redis_overhead_bytes_per_key"] = cube_bytes, redis_bytes
        for kind in ("uniform",) if quick else ("uniform", "zipf"):
            for batch in batches:
                best = comparison.throughput(cube, redis, keys, row, batch, kind)
                ratio = best["cube"].keys_s / best["redis"].keys_s
                suffix = f"{batch}" if is_main and kind == "uniform" else f"{batch}_{row}b_{keys // 1_000_000}m_{kind}"
                result[f"vs_redis_{suffix}"] = ratio
                result[f"cpu_vs_redis_{suffix}"] = best["redis"].cpu_ns_per_key / best["cube"].cpu_ns_per_key
                result[f"mget_vs_redis_{suffix}"] = best["cube redis"].keys_s / best["redis"].keys_s
                if is_main and kind == "uniform":
                    limit = HashMap(keys, row, batch).keys_s(comparison.seconds)
                    print(f"{'':>36} hash map in process: {limit / 1e6:.1f} M keys/s")
                    result["vs_hashmap" if batch == 100 else f"vs_hashmap_{batch}"] = best["cube"].keys_s / limit
                if is_main and kind == "uniform" and batch == 100:
                    rate = 0.5 * best["redis"].keys_s / batch
                    middle = comparison.latency(cube, redis, keys, row, batch, rate)
                    result["p99_ratio_100"] = middle["cube"].p99_us / middle["redis"].p99_us
                    result["p999_ratio_100"] = middle["cube"].p999_us / middle["redis"].p999_us


def main() -> None:
    arguments = measure.parse_arguments("Cube server against Redis and a hash map")
    load = LoadGenerator()
    version = subprocess.run([str(find_redis("redis-server")), "--version"], capture_output=True, text=True).stdout
    print(f"{version.split(' sha')[0]}; server on core 0, load on core 1")
    comparison = Comparison(load, 3, 0.5 if arguments.quick else 1.5, arguments.quick)
    sizes = [(1_000_000, 40)] if arguments.quick else [(1_000_000, 40), (1_000_000, 256), (20_000_000, 40)]
    result: dict[str, float] = {}
    io_threads = 1 if arguments.quick else choose_io_threads(comparison, 1_000_000, 40)
    for keys, row in sizes:
        if measure_fits(keys, row):
            run_size(keys, row, comparison, io_threads, arguments.quick, result)
        else:
            print(f"{keys:>10,} x {row:>3} B: skipped, both servers' rows do not fit in the available memory")
    result["resp_vs_redis"] = compare_by_redis_benchmark(load, 1_000_000, 40, arguments.quick)
    if comparison.wrong:
        raise SystemExit(f"{comparison.wrong} answers were wrong")
    measure.print_result(result)


def measure_fits(keys: int, row: int) -> bool:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    return available > keys * (2 * (row + 12) + row + 110) * 1.1


if __name__ == "__main__":
    main()
