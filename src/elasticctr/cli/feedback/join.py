"""`elasticctr feedback join`."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class FormatChoice(StrEnum):
    FEASIGN = "feasign"
    SLOT = "slot"


class WriteChoice(StrEnum):
    ALL = "all"
    NEGATIVES = "negatives"
    CLICKS = "clicks"


def join(
    requests: Annotated[list[str], typer.Option(metavar="DIR", help="Request log, a directory or file; repeatable.")],
    clicks: Annotated[
        list[str],
        typer.Option(
            metavar="FILE", help="Clicks as JSON lines or CSV with id, index and time: file, directory or glob."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the samples: DIR/{date}/{hour}/part-*.txt.")],
    window: Annotated[str, typer.Option(help="Time after a request within which a click counts: 30m, 2h, 1d.")] = "30m",
    impressions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Impressions, in the form of --clicks; only candidates shown become samples. Repeatable.",
        ),
    ] = None,
    format: Annotated[
        FormatChoice | None,
        typer.Option(help="Format of the samples; default: slot if there are dense slots, else feasign."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model whose requests to join; required if the log has several.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory that carries state from one run to the next; default: write everything at once.",
        ),
    ] = None,
    delay: Annotated[
        str, typer.Option(help="With --state: time that clicks may take to arrive after the window.")
    ] = "2m",
    skew: Annotated[str, typer.Option(help="Allowed difference between the clocks of servers and clicks.")] = "5s",
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --state: run as of this time; default: now.")
    ] = None,
    keep_late: Annotated[
        bool, typer.Option("--keep-late", help="Write clicks without a sample to OUT/_late/, with the reason.")
    ] = False,
    write: Annotated[
        WriteChoice,
        typer.Option(
            help="Samples to write: all; negatives: every candidate with label 0, clicked or not; clicks: clicked "
            "candidates only. Losses for delayed feedback train on negatives and clicks, each with its own --out and "
            "--state."
        ),
    ] = WriteChoice.ALL,
    label: Annotated[str, typer.Option(help="Name of the label in the slot format.")] = "click",
    as_json: JsonOption = False,
) -> None:
    """Join logged requests with clicks into training samples.

    Writes one line per candidate, by the hour of the request. With --state, run it every few minutes: each request is
    written once, after window and delay have passed, and an hour gets its donefile once it is complete. It is safe to
    kill at any moment.

    Example: `elasticctr feedback join --requests log --clicks clicks.jsonl --out samples --window 30m --state join`
    """
    from elasticctr.serve.feedback.events import parse_time
    from elasticctr.serve.feedback.join import JoinOptions
    from elasticctr.serve.feedback.join import join as run_join

    try:
        now_s = None if now is None else parse_time(now)
    except ValueError as e:
        raise ConfigError(f"--now {now}: {e}; give unix seconds or 2026-11-15T16:00:00") from None
    options = JoinOptions(
        requests=tuple(requests),
        clicks=tuple(clicks),
        out=out,
        window_s=parse_duration(window, "--window"),
        impressions=tuple(impressions or ()),
        format=None if format is None else format.value,
        model=model,
        state=state,
        delay_s=parse_duration(delay, "--delay"),
        skew_s=parse_duration(skew, "--skew"),
        now_s=now_s,
        keep_late=keep_late,
        label=label,
        write=write.value,
    )
    with Progress("joining", unit="lines", console=Console(quiet=True) if as_json else None) as progress:
        result = run_join(options, progress.advance)
    if as_json:
        print_json(result)
    else:
        print_pairs(_shown(result))


def parse_duration(text: str, option: str) -> float:
    """Seconds of 90, 90s, 30m, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise ConfigError(f"{option} {text!r} is not a time such as 90s, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def _shown(result: dict[str, Any]) -> list[tuple[str, str]]:
    always = ("requests", "clicks", "samples", "clicked")
    pairs = [(name, f"{result[name]:,}") for name in always]
    pairs += [
        (name.replace("_", " "), f"{value:,}")
        for name, value in result.items()
        if isinstance(value, int) and value and name not in always
    ]
    return [*pairs, *(("wrote", name) for name in result["files"])]
