"""`elasticctr versions verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from elasticctr.cli.output import JsonOption, print_json, print_pairs
from elasticctr.errors import ConfigError
from elasticctr.obs.progress import Progress
from elasticctr.versions import Repository


def verify(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="REPO/MODEL/VERSION, REPO/MODEL for the live version, or a run.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Verify the files and scores of a version, or the checkpoints of a run.

    Checks every digest, that every row is in its place, and that the stored samples get their stored scores.

    Example: `elasticctr versions verify /srv/models/ctr/7`
    """
    if Path(target, "job.yaml").exists():
        result: dict[str, Any] = _verify_run(Path(target))
    else:
        from elasticctr.versions.verification import verify_version

        repository, model, version = _open(target)
        total = sum(manifest.bytes for manifest in repository.chain(model, version))
        with Progress(
            "verifying", total=total, unit="bytes", console=Console(quiet=True) if as_json else None
        ) as progress:
            checked = verify_version(repository, model, version, progress.advance)
        result = {name: getattr(checked, name) for name in checked.__slots__} | {"chain": list(checked.chain)}
    if as_json:
        print_json(result)
    else:
        print_pairs((name, str(value)) for name, value in result.items())
        typer.echo("verified")


def _open(target: str) -> tuple[Repository, str, int]:
    """REPO/MODEL/VERSION or REPO/MODEL taken apart."""
    parent, _, last = target.rstrip("/").rpartition("/")
    if last.isdigit():
        repo, _, model = parent.rpartition("/")
        number: int | None = int(last)
    else:
        repo, model, number = parent, last, None
    if not repo or not model:
        raise ConfigError(f"{target}: name a version as REPO/MODEL/VERSION, or a run directory")
    repository = Repository(repo)
    return repository, model, repository.live(model).version if number is None else number


def _verify_run(run: Path) -> dict[str, Any]:
    """Every checkpoint of a run; the newest is loaded, which checks its tables' blocks."""
    from elasticctr.models.cpu import prepare_torch

    prepare_torch()
    from elasticctr.train.checkpoint import list_checkpoints, open_checkpoint
    from elasticctr.train.loading import load_learner

    found = [open_checkpoint(path) for path in list_checkpoints(run / "checkpoints")]
    rows = 0
    for checkpoint in found:
        learner, _ = load_learner(checkpoint.path)
        rows = sum(len(table) for table in learner.sparse.tables)
    return {"run": str(run), "checkpoints": [checkpoint.step for checkpoint in found], "rows": rows}
