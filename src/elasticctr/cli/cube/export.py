"""`elasticctr cube export`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from elasticctr.cli.output import JsonOption, print_json
from elasticctr.errors import ConfigError
from elasticctr.versions.interchange import FORMATS, export_version
from elasticctr.versions.repository import Repository


def export(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="REPO/MODEL/VERSION, or REPO/MODEL for the live version.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Directory, s3:// or hdfs:// URL to write to.")],
    form: Annotated[
        str, typer.Option("--format", help="Format to write: sequence, hadoop, text or parquet.")
    ] = "sequence",
    table: Annotated[list[str] | None, typer.Option(help="Export only this table; repeatable. Default: all.")] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="For a delta: export all rows of its chain, not only the changed ones.")
    ] = False,
    quantise: Annotated[
        bool, typer.Option("--quantise", help="Write 8-bit rows; for formats sequence and hadoop.")
    ] = False,
    donefile: Annotated[
        bool,
        typer.Option("--donefile", help="Announce a base in TABLE/donefile/base.txt and a delta in patch.txt."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export the rows of a published version for other systems.

    Writes SequenceFiles, text or Parquet.

    Example: `elasticctr cube export /srv/models/ctr/7 --out /srv/cube --format hadoop`
    """
    if form not in FORMATS:
        raise ConfigError(f"--format {form}: unknown; known: {', '.join(FORMATS)}")
    repo, model, number = _locate(version)
    repository = Repository(repo)
    chosen = repository.live(model).version if number is None else number
    exported = export_version(
        repository, model, chosen, out, form, tables=table, whole=whole, quantise=quantise, donefile=donefile
    )
    if as_json:
        print_json({"model": model, "version": chosen, "format": form, "tables": [asdict(e) for e in exported]})
        return
    for e in exported:
        gone = f", {e.gone:,} feasigns gone" if e.gone else ""
        announced = f"; announced in {e.donefile}" if e.donefile else ""
        typer.echo(f"{e.table}: {e.rows:,} rows{gone} in {e.files} files in {e.directory}{announced}")


def _locate(version: str) -> tuple[str, str, int | None]:
    """Repository, model and number."""
    rest, _, last = version.rstrip("/").rpartition("/")
    if last.isdigit() and rest:
        repo, _, model = rest.rpartition("/")
        number: int | None = int(last)
    else:
        repo, model, number = rest, last, None
    if not repo or not model:
        raise ConfigError(f"{version}: not REPO/MODEL/VERSION or REPO/MODEL; for example /srv/models/ctr/7")
    return repo, model, number
