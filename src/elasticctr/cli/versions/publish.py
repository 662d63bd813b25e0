"""`elasticctr publish`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from elasticctr.cli.options.runs import RunArgument
from elasticctr.cli.options.settings import default_of, setting
from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.cli.versions.repository import summarize
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress
from elasticctr.train.job import PublishSettings

Encoding = Literal["fp32", "fp16", "int8"]
ENCODING: Encoding = default_of(PublishSettings, "encoding")


def publish(
    run: RunArgument,
    repo: Annotated[str, setting(PublishSettings, "to", "--repo")],
    model: Annotated[str | None, setting(PublishSettings, "model")] = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="best|last|STEP", help="Checkpoint to publish: best, last, or a step.")
    ] = "best",
    base: Annotated[bool, typer.Option("--base", help="Publish a base even if a delta is possible.")] = False,
    delta: Annotated[bool, typer.Option("--delta", help="Publish a delta, or fail if that is impossible.")] = False,
    encoding: Annotated[Encoding, setting(PublishSettings, "encoding")] = ENCODING,
    max_chain: Annotated[int, setting(PublishSettings, "max_chain")] = default_of(PublishSettings, "max_chain"),
    keep: Annotated[int | None, setting(PublishSettings, "keep")] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a trained run as an immutable, numbered version and make it live.

    The version is a delta, which holds the rows changed since the last version published from this run, when possible;
    otherwise it is a base.

    Example: `elasticctr publish runs/deepfm --repo /srv/models --model ctr --encoding fp16 --keep 5`
    """
    if base and delta:
        raise ConfigError("--base and --delta exclude each other")
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from elasticctr.publish.runs import publish_run

    with Progress("publishing", unit="rows", console=Console(quiet=True) if as_json else None) as progress:
        manifest, metrics = publish_run(
            run,
            repo,
            model=model,
            checkpoint=checkpoint,
            kind="base" if base else "delta" if delta else "auto",
            encoding=encoding,
            max_chain=max_chain,
            keep=keep,
            advance=progress.advance,
        )
    loss = metrics.get("encoding")
    if as_json:
        print_json({**summarize(manifest), "repository": repo, "encoding_loss": loss})
        return
    on = f" on {manifest.parent}" if manifest.parent else ""
    typer.echo(
        f"{manifest.model} version {manifest.version} ({manifest.kind}{on}): {manifest.rows:,} rows, "
        f"{manifest.gone:,} gone, {manifest.bytes:,} bytes"
    )
    if loss is not None:
        print_pairs((name, f"{value:.7g}" if isinstance(value, float) else str(value)) for name, value in loss.items())
