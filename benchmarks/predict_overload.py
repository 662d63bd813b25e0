"""`elasticctr serve` at three times its capacity: goodput, and how fast the rest is refused.

Capacity is the throughput of a closed loop. Then requests arrive at three times that rate, at fixed times whether or
not the server keeps up, on as many connections as needed. An answer counts if it arrives within the deadline, measured
from when its request was due; refusals (429) are timed the same way. Server on core 0, load on core 1.
"""

from __future__ import annotations

import statistics

import measure
from contenders.predict_data import prepare, read_bodies
from contenders.predict_servers import LoadGenerator, Result, start_ours

CANDIDATES = 100  # requests are expensive enough that one core of load can offer three times the capacity
OVERLOAD = 3.0
DEADLINE_MS = 250.0
CONNECTIONS = 32
OPEN_CONNECTIONS = 2000


def main() -> None:
    arguments = measure.parse_arguments("three times the capacity: goodput within the deadline, and refusals")
    prepare()
    rounds, seconds = (1, 2.0) if arguments.quick else (3, 5.0)
    load = LoadGenerator()
    peaks: list[Result] = []
    over: list[Result] = []
    after: list[Result] = []
    with start_ours() as server:
        server.wait(read_bodies(1, 1)[0])
        load.run(server, CANDIDATES, CONNECTIONS, 0, 0.5)
        for _ in range(rounds):
            peaks.append(load.run(server, CANDIDATES, CONNECTIONS, 0, seconds))
            rate = OVERLOAD * peaks[-1].requests_s
            over.append(load.run(server, CANDIDATES, OPEN_CONNECTIONS, rate, seconds, DEADLINE_MS))
            after.append(load.run(server, CANDIDATES, CONNECTIONS, 0, 0.5))
            show(peaks[-1], over[-1], after[-1], rate, seconds)
    figures = {
        "capacity_s": statistics.median(result.requests_s for result in peaks),
        "goodput_ratio": statistics.median(b.in_time_s / a.requests_s for a, b in zip(peaks, over, strict=True)),
        "refusal_p99_ms": statistics.median(result.refused_p99_us for result in over) / 1e3,
        "recovered_ratio": statistics.median(b.requests_s / a.requests_s for a, b in zip(peaks, after, strict=True)),
        "failed": sum(result.failed - result.refused for result in (*peaks, *over, *after)),
    }
    measure.print_result(figures)


def show(peak: Result, over: Result, after: Result, rate: float, seconds: float) -> None:
    refused_s = over.refused / seconds
    print(
        f"capacity {peak.requests_s:8,.0f}/s; offered {rate:8,.0f}/s: {over.in_time_s:8,.0f}/s in time, "
        f"{refused_s:8,.0f}/s refused (p99 {over.refused_p99_us / 1e3:.1f} ms), answers p99 {over.p99_us / 1e3:.0f} "
        f"ms; afterwards {after.requests_s:8,.0f}/s",
        flush=True,
    )


if __name__ == "__main__":
    main()
