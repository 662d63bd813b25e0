"""`elasticctr status`, `logs`, `stop`, `checkpoint`: a run with several processes, seen from anywhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.output import JsonOption, print_json, print_table
from elasticctr.cluster.engine import RoleState
from elasticctr.cluster.feed import ask_status
from elasticctr.cluster.logs import Follower, find_logs
from elasticctr.cluster.view import COLUMNS, headline, make_rows
from elasticctr.config.tls import TlsSettings
from elasticctr.errors import ElasticCTRError, NotFound, Unauthorized, Unavailable
from elasticctr.net.access import read_optional_token
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.train.run_directory import RunDirectory

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
TokenOption = Annotated[
    Path | None, typer.Option(help="File with the job's secret; default: the run's own, or cluster.token_file.")
]


def status(
    run: RunArgument,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the roles of a run and how far it is: rows, memory, rates, leases, restarts.

    Asks the coordinator; when there is none, shows what the run directory says of the processes.

    Example: `elasticctr status runs/deepfm`
    """
    directory = _open(run)
    known, why_not = _ask(directory, token_file)
    engine, states = _read_states(run)
    if as_json:
        print_json({"run_dir": str(run), "engine": engine, "coordinator": known or None, "processes": states})
        return
    typer.echo(headline(known) if known else f"no coordinator answers: {why_not}")
    rows = make_rows(known, [RoleState(**state) for state in states])
    if rows:
        print_table("roles", COLUMNS, rows)


def logs(
    run: RunArgument,
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="[ROLE]...", help="Such as trainer-0; default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is printed from now on.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines of each role to begin with.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print what the roles of a run printed, all in one place.

    With several roles each line begins with its role. With `--follow`, Ctrl-C ends it.

    Example: `elasticctr logs runs/deepfm trainer-0 --follow`
    """
    paths = find_logs(run, roles or [])
    followers = [Follower(path, lines) for path in paths]
    width = max(len(follower.name) for follower in followers)
    is_many = len(followers) > 1

    def show() -> bool:
        is_news = False
        for follower in followers:
            for line in follower.read():
                is_news = True
                if as_json:
                    print_json({"role": follower.name, "line": line})
                else:
                    typer.echo(f"{follower.name:<{width}} | {line}" if is_many else line)
        return is_news

    show()
    while follow:
        if not show():
            time.sleep(0.2)


def stop(run: RunArgument, token_file: TokenOption = None, as_json: JsonOption = False) -> None:
    """End a run with several processes in order: a checkpoint first, then every role.

    Whoever started it sees it end as by Ctrl-C, and `--resume` goes on from there.

    Example: `elasticctr stop runs/deepfm`
    """
    _post(run, token_file, "/v1/stop")
    if as_json:
        print_json({"run_dir": str(run), "asked": "stop"})
    else:
        typer.echo(f"{run} stops; go on with: elasticctr train {run}/job.yaml --resume")


def checkpoint(run: RunArgument, token_file: TokenOption = None, as_json: JsonOption = False) -> None:
    """Take a checkpoint of a run with several processes now, while it goes on training.

    Example: `elasticctr checkpoint runs/deepfm`
    """
    _post(run, token_file, "/v1/checkpoint")
    if as_json:
        print_json({"run_dir": str(run), "asked": "checkpoint"})
    else:
        typer.echo(f"a checkpoint is taken; {run}/checkpoints has it when it is complete")


def _post(run: Path, token_file: Path | None, path: str) -> None:
    directory = _open(run)
    token = read_optional_token(_token_file(directory, token_file))
    with Peer(find_coordinator(directory.path), token, timeout_s=600, tls=_tls(directory)) as peer:
        try:
            peer.post(path, {})
        except Unavailable as e:
            raise Unavailable(
                f"{run}: its coordinator does not answer; has the run ended? `elasticctr status {run}` shows it ({e})"
            ) from e


def _open(run: Path) -> RunDirectory:
    directory = RunDirectory(run)
    if not directory.job.exists():
        raise NotFound(f"{run}: is not a run directory (no job.yaml)")
    return directory


def _token_file(directory: RunDirectory, given: Path | None) -> Path | None:
    if given is not None:
        return given
    settings = directory.load_job().cluster
    if settings is not None and settings.token_file is not None:
        return Path(settings.token_file)
    own = directory.path / "cluster" / "token"
    return own if own.exists() else None


def _tls(directory: RunDirectory) -> TlsSettings | None:
    settings = directory.load_job().cluster
    return None if settings is None else settings.tls


def _ask(directory: RunDirectory, token_file: Path | None) -> tuple[dict[str, Any], str]:
    """The coordinator's status, or why there is none."""
    try:
        token = read_optional_token(_token_file(directory, token_file))
        return ask_status(directory.path, token, tls=_tls(directory)), ""
    except Unauthorized:
        raise
    except ElasticCTRError as e:
        return {}, str(e)


def _read_states(run: Path) -> tuple[str | None, list[dict[str, Any]]]:
    """What the engine last noted of its processes."""
    try:
        noted = json.loads((run / "cluster" / "roles.json").read_text(encoding="utf-8"))
        return str(noted["engine"]), [dict(state) for state in noted["roles"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None, []
