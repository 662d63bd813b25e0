"""`elasticctr cube bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.options.cube_servers import (
    AtOption,
    ConfOption,
    ModelOption,
    TimeoutOption,
    TokenOption,
    open_client,
)
from elasticctr.cli.options.tls import CaOption, KeyOption, ShownCertOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.cube.keys import draw_feasigns, read_feasigns
from elasticctr.errors import ConfigError, DataError
from elasticctr.obs.progress import Progress

DRAWN = 1 << 20
TIMES = ("p50_us", "p80_us", "p90_us", "p99_us", "p99_9_us", "max_us")


def bench(
    table: Annotated[str, typer.Argument(help="Table: MODEL/TABLE, or TABLE with --model.")],
    conf: ConfOption = None,
    at: AtOption = None,
    keys: Annotated[Path | None, typer.Option(help="File with a feasign per line; asked for in this order.")] = None,
    random: Annotated[
        int | None, typer.Option("--random", help="Instead of --keys: draw feasigns from 0 … N - 1.", min=1)
    ] = None,
    zipf: Annotated[
        float | None, typer.Option(help="With --random: few feasigns are most of the traffic; an exponent over 1.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Feasigns per lookup.", min=1, max=1_000_000)] = 100,
    threads: Annotated[
        int, typer.Option("--threads", "--connections", help="Lookups under way at a time, a connection each.", min=1)
    ] = 1,
    seconds: Annotated[float, typer.Option(help="How long.", min=0.1, max=86_400)] = 5.0,
    qps: Annotated[
        float | None,
        typer.Option(
            help="Lookups per second, started on time whether or not earlier ones ended; default: no pause.", min=0.01
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="This version, not the active one.", min=1)] = None,
    cache_bytes: Annotated[int | None, typer.Option(help="Memory for the hot-key cache.", min=0)] = None,
    model: ModelOption = None,
    token_file: TokenOption = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure lookups: rate, percentiles, misses, errors by kind, versions seen.

    With --qps times count from when a lookup was due, so a server that stalls is not flattered.

    Example: `elasticctr cube bench ctr/embedding --conf cube.yaml --random 1000000 --zipf 1.1 --batch 100 --threads 4`
    """
    if (keys is None) == (random is None):
        raise ConfigError("say what to ask for: --keys FILE or --random N, one of them")
    if zipf is not None and random is None:
        raise ConfigError("--zipf goes with --random")
    feasigns = read_feasigns(keys) if keys is not None else draw_feasigns(random or 1, DRAWN, zipf)
    if feasigns.size == 0:
        raise DataError("holds no feasign", keys)
    override = {} if cache_bytes is None else {"cache_bytes": cache_bytes}
    with open_client(conf, at, model, token_file, override, read_tls(tls_cert, tls_key, ca=tls_ca)) as client:
        before = client.get(table, feasigns[:1], version, timeout)
        load = client.start_load(
            table,
            feasigns,
            batch=batch,
            threads=threads,
            seconds=seconds,
            rate=qps or 0.0,
            version=version,
            timeout_s=timeout,
        )
        try:
            with Progress("bench", total=None, unit="lookups") as progress:
                while not load.is_done:
                    time.sleep(0.1)
                    progress.advance(load.calls - progress.done)
        except KeyboardInterrupt:
            load.stop()
        measured = load.finish()
        result: dict[str, Any] = {"table": table, "row_bytes": before.rows.shape[1] * before.rows.itemsize}
        result |= {"batch": batch, "threads": threads, **measured}
        result |= {"calls_s": measured["calls"] / measured["seconds"], "keys_s": measured["keys"] / measured["seconds"]}
        result["client"] = client.stats()
    if as_json:
        print_json(result)
    else:
        _print(result)
    failed = sum(result["errors"].values())
    if failed and not result["calls"]:
        raise typer.Exit(1)


def _print(result: dict[str, Any]) -> None:
    stats = result["client"]
    pairs = [
        ("lookups", f"{result['calls']:,} in {result['seconds']:.1f} s, {result['calls_s']:,.0f}/s"),
        ("feasigns", f"{result['keys']:,}, {result['keys_s']:,.0f}/s; {result['missing']:,} missing"),
        *((name.removesuffix("_us").replace("_", "."), f"{result[name]:,.0f} µs") for name in TIMES),
        ("versions", ", ".join(f"{v} ({n:,})" for v, n in result["versions"].items()) or "none"),
        ("errors", ", ".join(f"{name} {n:,}" for name, n in result["errors"].items()) or "none"),
        (
            "retries",
            f"{stats['retries']:,}; {stats['backups']:,} backup requests, {stats['backups_won']:,} of them won",
        ),
    ]
    if stats["cache_bytes"]:
        asked = stats["cache_hits"] + stats["cache_misses"]
        pairs.append(("cache", f"{stats['cache_hits'] / max(asked, 1):.1%} hits, {stats['cache_bytes']:,} bytes"))
    if result["first_error"]:
        pairs.append(("first error", result["first_error"]))
    print_pairs(pairs)
