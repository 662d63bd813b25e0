"""`elasticctr call`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticctr.cli.data.inspect import read_schema
from elasticctr.cli.options.access import ClientToken
from elasticctr.cli.options.tls import CaOption, ClientCertOption, KeyOption
from elasticctr.cli.output import JsonOption, print_error, print_json, print_pairs
from elasticctr.data.schema import Format
from elasticctr.errors import ConfigError, DataError
from elasticctr.obs import console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from elasticctr.serve.client import EndpointSettings, PredictClient, PredictClientSettings
    from elasticctr.serve.client.load import Load

SHOWN_SCORES = 20


def call(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Samples: files, directories, globs or URLs.")
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Prediction server, optionally with a weight: 'URL 2'; repeatable."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to query.")] = None,
    sample: Annotated[
        list[str] | None, typer.Option(help='Sample as JSON, such as {"C1": "a"}, instead of files; repeatable.')
    ] = None,
    user: Annotated[str | None, typer.Option(help="Values that all --sample candidates share, as JSON.")] = None,
    format: Annotated[
        Format | None, typer.Option(help="Format of the files; default: from their names, else the model's.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="schema.yaml for CSV and Parquet files, which are then sent as feasigns.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples per request.", min=1, max=100_000)] = 100,
    concurrency: Annotated[int, typer.Option(help="Concurrent requests.", min=1, max=1024)] = 4,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second, sent on schedule; default: as fast as answers arrive.", min=0.001),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Send everything this many times.", min=1)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="File for the scores: Parquet if it ends in .parquet, else text.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one request, including retries.", min=0.001)] = 5.0,
    retries: Annotated[int, typer.Option(help="Retries of a failed request.", min=0, max=63)] = 2,
    hedge_ms: Annotated[
        float,
        typer.Option(help="Milliseconds without an answer after which a second endpoint is asked; 0: never.", min=0),
    ] = 0.0,
    predictors: Annotated[
        Path | None,
        typer.Option(help="predictors.prototxt of Paddle Serving, instead of --endpoint."),
    ] = None,
    predictor: Annotated[str | None, typer.Option(help="Name of the predictor in --predictors.")] = None,
    sticky: Annotated[
        str | None, typer.Option(help="Value that decides which variant answers, such as a user id.")
    ] = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send samples to prediction servers and report scores, latencies and errors.

    Also reports the versions and variants that answered, and coverage. Lines of text formats are sent unchanged. If a
    request fails, its samples get the score nan, the other requests continue, and the exit status is that of the first
    error.

    Example: `elasticctr call today.txt --endpoint http://127.0.0.1:8500 --model ctr --format criteo --out scores.txt`
    """
    if bool(files) == bool(sample):
        raise ConfigError('name what to send with either FILE… or --sample \'{"C1": "a"}\'')
    if user is not None and not sample:
        raise ConfigError("--user needs --sample")
    if schema is not None and not files:
        raise ConfigError("--schema needs files")
    own: dict[str, object] = {"timeout_ms": timeout * 1000, "retries": retries, "hedge_ms": hedge_ms}
    settings = _read_settings(endpoint, (predictors, predictor), model, own, token_file, (ca_file, cert_file, key_file))
    from elasticctr.serve.client import PredictClient

    with PredictClient(settings) as client:
        if sample:
            _call_once(client, [_parse(text, "--sample") for text in sample], user, sticky, as_json)
            return
        load = _send(client, list(files or []), format, schema, batch, repeat, rate, concurrency, sticky, as_json)
    first = len(load.counts) // repeat
    if out is not None:
        from elasticctr.serve.client.scores import write_scores

        write_scores(out, load.counts[:first], load.scores, load.tally.labels)
    _report(load, first, out, as_json)
    if load.tally.first_error is not None:
        if not as_json:
            print_error(load.tally.first_error, as_json=False)
        raise typer.Exit(load.tally.first_error.exit_status)


def _read_settings(
    endpoint: list[str] | None,
    predictors: tuple[Path | None, str | None],
    model: str | None,
    patience: dict[str, object],
    token_file: Path | None,
    tls: tuple[Path | None, Path | None, Path | None],
) -> PredictClientSettings:
    """`patience` is for endpoints; predictors have their own."""
    from elasticctr.net.access import read_token
    from elasticctr.serve.client.settings import make_settings

    path, name = predictors
    if bool(endpoint) == (path is not None):
        raise ConfigError("name the servers with either --endpoint http://host:8500 or --predictors FILE")
    own: dict[str, object] = {
        "model": model,
        "token": None if token_file is None else read_token(token_file),
    }
    own |= dict(
        zip(("ca_file", "cert_file", "key_file"), (None if one is None else str(one) for one in tls), strict=True)
    )
    if path is None:
        return make_settings([_parse_endpoint(text) for text in endpoint or []], (), own | patience)
    from elasticctr.compat.paddle_serving import read_predictors

    settings, notes = read_predictors(path, name)
    for note in notes:
        console.warn(note)
    return make_settings(settings, (), own)


def _parse_endpoint(text: str) -> EndpointSettings:
    from elasticctr.serve.client import EndpointSettings

    url, _, weight = text.strip().partition(" ")
    try:
        return EndpointSettings(url, float(weight or 1))
    except ValueError:
        raise ConfigError(f"--endpoint {text!r}: {weight!r} is not a weight") from None


def _parse(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as e:
        raise DataError(f"{option}: not JSON: {e}") from None
    if not isinstance(value, dict):
        raise DataError(f"{option}: expected an object of slots and values")
    return value


def _call_once(
    client: PredictClient, samples: list[dict[str, Any]], user: str | None, sticky: str | None, as_json: bool
) -> None:
    if user is None:
        got = client.predict(samples, key=sticky)
    else:
        got = client.predict(user=_parse(user, "--user"), candidates=samples, key=sticky)
    coverage = got.coverage
    result = {
        "scores": got.scores.tolist(),
        "model": got.model,
        "version": got.version,
        "variant": got.variant,
        "id": got.id,
        "coverage": {"asked": coverage.asked, "found": coverage.found, "degraded": coverage.is_degraded},
        "latency_ms": got.latency_s * 1000,
        "endpoint": got.endpoint,
    }
    if as_json:
        print_json(result)
        return
    print_pairs(
        [
            ("scores", _join(got.scores)),
            ("version", f"{got.version} of {got.model}, variant {got.variant}"),
            ("coverage", f"{coverage.found} of {coverage.asked} rows" + (", degraded" if coverage.is_degraded else "")),
            ("latency", f"{got.latency_s * 1000:.2f} ms"),
        ]
    )


def _send(
    client: PredictClient,
    files: list[str],
    format: Format | None,
    schema: Path | None,
    batch: int,
    repeat: int,
    rate: float | None,
    concurrency: int,
    sticky: str | None,
    quiet: bool,
) -> Load:
    from rich.console import Console

    from elasticctr.obs.progress import Progress
    from elasticctr.serve.client.files import read_requests, repeat_requests
    from elasticctr.serve.client.load import Load

    requests = repeat_requests(read_requests(files, batch, format, read_schema(schema)), repeat)
    with Progress("call", unit="requests", console=Console(quiet=True) if quiet else None) as progress:
        load = Load(
            client, requests, key=sticky, rate=rate, advance=lambda done: progress.advance(done - progress.done)
        )
        load.run(concurrency)
    if not load.counts:
        raise DataError("no samples in the files")
    return load


def _report(load: Load, first: int, out: Path | None, as_json: bool) -> None:
    tally = load.tally
    result: dict[str, Any] = {
        "requests": tally.requests,
        "samples": tally.samples,
        "seconds": load.seconds,
        "requests_s": tally.requests / max(load.seconds, 1e-9),
        "samples_s": tally.samples / max(load.seconds, 1e-9),
        **tally.percentiles(),
        "errors": dict(tally.errors),
        "first_error": None if tally.first_error is None else str(tally.first_error),
        "versions": dict(tally.versions),
        "variants": dict(tally.variants),
        "endpoints": dict(tally.endpoints),
        "retries": tally.retried,
        "coverage": {"asked": tally.asked, "found": tally.found, "degraded": tally.degraded},
        "reasons": dict(tally.reasons.most_common(20)),
        "out": None if out is None else str(out),
    }
    if as_json:
        print_json(result)
        return
    shown = [load.scores[number] for number in range(first) if load.scores.get(number) is not None]
    pairs = [] if out is not None or not shown else [("scores", _join(shown[0]))]
    pairs += [
        (
            "requests",
            f"{tally.requests:,} of {tally.samples:,} samples in {load.seconds:.1f} s: "
            f"{result['requests_s']:,.0f}/s, {result['samples_s']:,.0f} samples/s",
        ),
        *(
            (name.removesuffix("_ms").replace("_", "."), f"{value:.2f} ms")
            for name, value in tally.percentiles().items()
        ),
        ("errors", _counts(tally.errors)),
        ("versions", _counts(tally.versions)),
        ("variants", _counts(tally.variants)),
        ("retries", f"{tally.retried:,}"),
        ("coverage", f"{tally.found:,} of {tally.asked:,} rows; {tally.degraded:,} requests degraded"),
    ]
    if tally.reasons:
        pairs.append(("reasons", _counts(tally.reasons)))
    if out is not None:
        pairs.append(("written", str(out)))
    print_pairs(pairs)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(10)) or "none"


def _join(scores: NDArray[np.float32] | None) -> str:
    if scores is None:
        return "none"
    shown = ", ".join(str(score) for score in scores[:SHOWN_SCORES].tolist())
    return shown + (f", … ({len(scores):,} in all)" if len(scores) > SHOWN_SCORES else "")
