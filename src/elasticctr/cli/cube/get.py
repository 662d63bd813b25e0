"""`elasticctr cube get`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

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
from elasticctr.cli.options.tls import CaOption, ClientCertOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cube.keys import parse_feasign, read_feasigns
from elasticctr.cube.local import LocalCube
from elasticctr.cube.lookup import Lookup
from elasticctr.errors import ConfigError

MOST_SHOWN = 8


def get(
    table: TableArgument,
    feasigns: Annotated[
        list[str] | None, typer.Argument(metavar="FEASIGN", help="Feasigns, decimal or 0x hexadecimal.")
    ] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    local: Annotated[
        Path | None, typer.Option(help="Read the index files in this directory instead of asking servers.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File with one feasign per line.")] = None,
    version: VersionOption = None,
    model: ModelOption = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look up rows, from Cube servers or from index files.

    Example: `elasticctr cube get ctr/embedding 17 0x2a --endpoint '10.0.0.1:8000,10.0.0.2:8000;10.0.0.3:8000'`
    """
    wanted = np.array([parse_feasign(text) for text in feasigns or []], dtype=np.uint64)
    if keys is not None:
        wanted = np.concatenate([wanted, read_feasigns(keys)])
    if wanted.size == 0:
        raise ConfigError("name at least one feasign, or a file of feasigns with --keys")
    if local is not None:
        if config is not None or endpoint is not None:
            raise ConfigError("--local reads files and excludes --config and --endpoint")
        name = table if "/" in table or model is None else f"{model}/{table}"
        lookup = LocalCube(local, name.split("/")[0] if "/" in name else None).get(name, wanted, version)
    else:
        with open_client(config, endpoint, model, token_file, tls=read_tls(cert_file, key_file, ca=ca_file)) as client:
            lookup = client.get(table, wanted, version, timeout)
    if as_json:
        print_json(_to_json(table, wanted, lookup))
        return
    shown = [
        [str(k), "yes" if f else "no", _show(row)] for k, f, row in zip(wanted, lookup.found, lookup.rows, strict=True)
    ]
    print_table(f"{table}, version {lookup.version}", ["#feasign", "found", "row"], shown)
    if lookup.degraded:
        typer.echo(f"shards {', '.join(map(str, lookup.degraded))} did not answer: their rows are unknown", err=True)


def _to_json(table: str, wanted: NDArray[np.uint64], lookup: Lookup) -> dict[str, object]:
    is_raw = lookup.rows.dtype == np.uint8
    rows = [
        {"feasign": int(key), "found": bool(found), "row": row.tobytes().hex() if is_raw else [float(v) for v in row]}
        for key, found, row in zip(wanted, lookup.found, lookup.rows, strict=True)
    ]
    return {"table": table, "version": lookup.version, "degraded": list(lookup.degraded), "rows": rows}


def _show(row: NDArray[np.float32] | NDArray[np.uint8]) -> str:
    if row.dtype == np.uint8:
        return row.tobytes().hex()
    more = f" … ({row.size})" if row.size > MOST_SHOWN else ""
    return " ".join(f"{value:.6g}" for value in row[:MOST_SHOWN]) + more
