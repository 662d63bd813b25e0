"""`elasticctr cube bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.options.access import ClientToken
from elasticctr.cli.options.cube_servers import (
    ConfigOption,
    EndpointOption,
    ModelOption,
    TableArgument,
    TimeoutOption,
    VersionOption,
    open_client,
)
from elasticctr.cli.options.settings import setting
from elasticctr.cli.options.tls import CaOption, ClientCertOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.cube.keys import draw_feasigns, read_feasigns
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import ConfigError, DataError
from elasticctr.obs.progress import Progress

DRAWN = 1 << 20
TIMES = ("p50_us", "p80_us", "p90_us", "p99_us", "p99_9_us", "max_us")


def bench(
    table: TableArgument,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    keys: Annotated[Path | None, typer.Option(help="File with one feasign per line, looked up in this order.")] = None,
    random: Annotated[
        int | None,
        typer.Option("--random", metavar="N", help="Draw feasigns from 0 to N - 1 instead of --keys.", min=1),
    ] = None,
    zipf: Annotated[
        float | None, typer.Option(help="With --random: Zipf exponent, above 1, of the feasigns' frequencies.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Feasigns per lookup.", min=1, max=1_000_000)] = 100,
    concurrency: Annotated[int, typer.Option(help="Concurrent lookups, one connection each.", min=1)] = 1,
    seconds: Annotated[float, typer.Option(help="Duration.", min=0.1, max=86_400)] = 5.0,
    rate: Annotated[
        float | None,
        typer.Option(help="Lookups per second, started on schedule; default: as fast as answers arrive.", min=0.01),
    ] = None,
    version: VersionOption = None,
    cache_bytes: Annotated[int | None, setting(CubeSettings, "cache_bytes")] = None,
    model: ModelOption = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the throughput and latency of lookups.

    Reports rates, percentiles, missing rows, errors by kind and the versions that answered. With --rate, latency is
    measured from the scheduled start, so that a stalling server is charged for the delay it causes.

    Example: `elasticctr cube bench ctr/embedding --config cube.yaml --random 1000000 --zipf 1.1 --concurrency 4`
    """
    if (keys is None) == (random is None):
        raise ConfigError("name the feasigns to look up with either --keys FILE or --random N")
    if zipf is not None and random is None:
        raise ConfigError("--zipf needs --random")
    feasigns = read_feasigns(keys) if keys is not None else draw_feasigns(random or 1, DRAWN, zipf)
    if feasigns.size == 0:
        raise DataError("holds no feasign", keys)
    override = {} if cache_bytes is None else {"cache_bytes": cache_bytes}
    with open_client(
        config, endpoint, model, token_file, override, read_tls(cert_file, key_file, ca=ca_file)
    ) as client:
        before = client.get(table, feasigns[:1], version, timeout)
        load = client.start_load(
            table,
            feasigns,
            batch=batch,
            threads=concurrency,
            seconds=seconds,
            rate=rate or 0.0,
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
        result |= {"batch": batch, "concurrency": concurrency, **measured}
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
