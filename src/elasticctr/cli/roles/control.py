"""`elasticctr stop` and `checkpoint`: one request to the coordinator of a run."""

from __future__ import annotations

from pathlib import Path

import typer

from elasticctr.cli.options.runs import RunArgument
from elasticctr.cli.output import JsonOption, print_json
from elasticctr.cli.roles.running import RunToken, open_directory, tls_of, token_of
from elasticctr.errors import Unavailable
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator


def stop(run: RunArgument, token_file: RunToken = None, as_json: JsonOption = False) -> None:
    """Write a checkpoint and stop a distributed run.

    The run ends as after Ctrl-C; `elasticctr train --resume` continues it.

    Example: `elasticctr stop runs/deepfm`
    """
    _post(run, token_file, "/v1/stop")
    if as_json:
        print_json({"run_dir": str(run), "asked": "stop"})
    else:
        typer.echo(f"{run} is stopping; resume with: elasticctr train {run}/job.yaml --resume")


def checkpoint(run: RunArgument, token_file: RunToken = None, as_json: JsonOption = False) -> None:
    """Write a checkpoint of a distributed run now.

    Training continues meanwhile.

    Example: `elasticctr checkpoint runs/deepfm`
    """
    _post(run, token_file, "/v1/checkpoint")
    if as_json:
        print_json({"run_dir": str(run), "asked": "checkpoint"})
    else:
        typer.echo(f"writing a checkpoint; it appears in {run}/checkpoints when complete")


def _post(run: Path, token_file: Path | None, path: str) -> None:
    directory = open_directory(run)
    token = token_of(directory, token_file)
    with Peer(find_coordinator(directory.path), token, timeout_s=600, tls=tls_of(directory)) as peer:
        try:
            peer.post(path, {})
        except Unavailable as e:
            raise Unavailable(
                f"{run}: its coordinator does not answer; `elasticctr status {run}` shows if the run ended ({e})"
            ) from e
