"""`elasticctr variants`: commands to a running prediction server, one file for all of them as each is one request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticctr.cli.options.tls import CaOption, KeyOption, ShownCertOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.errors import ConfigError, DeadlineExceeded, FailedPrecondition

if TYPE_CHECKING:
    from elasticctr.config.tls import TlsSettings

app = typer.Typer(
    name="variants",
    help="Which versions a running prediction server answers from: experiments, activation, rollback.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Endpoint = Annotated[str, typer.Option(help="Address of the server.")]
Model = Annotated[str | None, typer.Option(help="Model to command; needed if there are several.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the server's secret.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait until the version answers; 0: do not wait.", min=0)]
DEFAULT = "http://127.0.0.1:8500"


class _Remote:
    """A server and the model that is commanded."""

    def __init__(self, endpoint: str, model: str | None, token_file: Path | None, tls: TlsSettings | None) -> None:
        from elasticctr.net.access import read_token
        from elasticctr.net.client import Peer

        token = None if token_file is None else read_token(token_file)
        self._peer = Peer(endpoint, token, timeout_s=30.0, tls=tls)
        names = [str(one["name"]) for one in self._peer.get("/v1/status").get("models", [])]
        if model is None and len(names) != 1:
            raise ConfigError(f"{endpoint} serves {', '.join(names) or 'nothing'}; say which with --model")
        self.model = model or names[0]

    def status(self) -> dict[str, Any]:
        return self._peer.get(f"/v1/models/{self.model}")

    def command(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._peer.post(f"/v1/models/{self.model}:{verb}", body or {})

    def wait_live(self, version: int, wait_s: float) -> dict[str, Any]:
        """Until `version` answers. Raises FailedPrecondition with the reason if the server refuses it."""
        deadline = time.monotonic() + wait_s
        while True:
            status = self.status()
            refused = [one for one in status["refused"] if one["version"] == version and one["retry_at"] is None]
            if status["live"] == version or not wait_s:
                return status
            if refused:
                raise FailedPrecondition(f"version {version} is refused: {refused[0]['code']}: {refused[0]['reason']}")
            if time.monotonic() > deadline:
                step = (status["loading"] or {}).get("step", "waiting")
                raise DeadlineExceeded(f"version {version} does not answer after {wait_s:g} s: {step}")
            time.sleep(0.1)


def _show(status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(status)
        return
    held = f", held at {status['held']}" if status["held"] is not None else ""
    pairs = [
        ("model", status["name"]),
        ("live", str(status["live"] or "none")),
        ("before it", str(status["previous"] or "none")),
        ("announced", f"{status['announced'] or 'none'}{', paused' if status['paused'] else held}"),
        ("ready", ", ".join(str(one["version"]) for one in status["ready"]) or "none"),
    ]
    if status["loading"] is not None:
        pairs.append(("loading", f"{status['loading']['version']}: {status['loading']['step']}"))
    if status["sticky"]:
        pairs.append(("sticky by", status["sticky"]))
    if status["repository_error"]:
        pairs.append(("repository", status["repository_error"]))
    print_pairs(pairs)
    if status["variants"]:
        rows = [
            [
                one["name"],
                str(one["version"] or one["model"] or ""),
                f"{one['weight']:g}",
                "shadow" if one["shadow"] else "answers",
                "yes" if one["serving"] else "no",
            ]
            for one in status["variants"]
        ]
        print_table("variants", ["name", "of", "#weight", "role", "serving"], rows)
    if status["refused"]:
        rows = [[str(one["version"]), one["code"], one["reason"]] for one in status["refused"]]
        print_table("refused", ["#version", "code", "reason"], rows)


@app.command()
def show(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a model answers from, what it could go back to, and what was refused and why.

    Example: `elasticctr variants show --endpoint http://127.0.0.1:8500 --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca)).status(), json)


@app.command("set")
def set_(
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            help="NAME=VERSION[:WEIGHT][:shadow], or another model of the server instead of a version; none at all "
            "ends the experiment."
        ),
    ] = None,
    sticky: Annotated[str | None, typer.Option(help="Request field whose value decides the variant.")] = None,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Start, change or end an experiment. The live version has what the weights leave of 1.

    Example: `elasticctr variants set b=8:0.1 c=9:0.05:shadow --sticky user_id --model ctr`
    """
    parsed = [parse_variant(text) for text in variants or []]
    remote = _Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca))
    _show(remote.command("variants", {"variants": parsed, "sticky": sticky}), json)


@app.command()
def promote(
    variant: Annotated[str, typer.Argument(help="Name of the variant.")],
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Make a variant's version the live one and end the experiment.

    Example: `elasticctr variants promote b --model ctr`
    """
    _show(
        _Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca)).command(
            "promote", {"variant": variant}
        ),
        json,
    )


@app.command()
def activate(
    version: Annotated[int, typer.Argument(help="A version of the repository.", min=1)],
    wait: Wait = 60.0,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Serve a version, whatever the donefile announces next; `resume` follows the donefile again.

    Example: `elasticctr variants activate 7 --model ctr`
    """
    remote = _Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca))
    remote.command("activate", {"version": version})
    _show(remote.wait_live(version, wait), json)


@app.command()
def rollback(
    wait: Wait = 60.0,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Go back to the version served before, at once if it is still ready, and stay there until `resume`.

    Example: `elasticctr variants rollback --model ctr`
    """
    remote = _Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca))
    status = remote.command("rollback")
    _show(remote.wait_live(int(status["held"] or status["announced"] or status["live"]), wait), json)


@app.command()
def pause(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Stay at the live version: announced ones are not taken up until `resume`.

    Example: `elasticctr variants pause --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca)).command("pause"), json)


@app.command()
def resume(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: TokenFile = None,
    tls_ca: CaOption = None,
    tls_cert: ShownCertOption = None,
    tls_key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Follow the donefile again, after a pause, an activation by hand or a rollback.

    Example: `elasticctr variants resume --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, read_tls(tls_cert, tls_key, ca=tls_ca)).command("resume"), json)


def parse_variant(text: str) -> dict[str, Any]:
    """`b=8:0.1:shadow` as the API takes it."""
    name, _, rest = text.partition("=")
    of, *options = rest.split(":")
    variant: dict[str, Any] = {"name": name}
    if name != "live":
        variant["version" if of.isdecimal() else "model"] = int(of) if of.isdecimal() else of
    else:
        options.insert(0, of)
    try:
        for option in options:
            if option == "shadow":
                variant["shadow"] = True
            else:
                variant["weight"] = float(option)
    except ValueError:
        options = [""]
    if not name or not of or "" in options:
        raise ConfigError(f"{text!r} is not of the form NAME=VERSION[:WEIGHT][:shadow], such as b=8:0.1")
    return variant
