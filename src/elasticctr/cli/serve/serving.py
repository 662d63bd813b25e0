"""`elasticctr serving`: commands to a running prediction server. Each is one request, so one file has them all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticctr.cli.options.access import ClientToken
from elasticctr.cli.options.tls import CaOption, ClientCertOption, KeyOption, read_tls
from elasticctr.cli.output import JsonOption, print_json, print_pairs, print_table
from elasticctr.errors import ConfigError, DeadlineExceeded, FailedPrecondition

Endpoint = Annotated[str, typer.Option("--endpoint", metavar="URL", help="Prediction server to control.")]
Model = Annotated[str | None, typer.Option("--model", help="Model to control; required if the server has several.")]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait until the version answers; 0: do not wait.", min=0)
]
DEFAULT = "http://127.0.0.1:8500"


class _Remote:
    """A server and the model to control."""

    def __init__(
        self,
        endpoint: str,
        model: str | None,
        token_file: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
    ) -> None:
        from elasticctr.net.access import read_optional_token
        from elasticctr.net.client import Peer

        self._peer = Peer(endpoint, read_optional_token(token_file), timeout_s=30.0, tls=read_tls(cert, key, ca=ca))
        names = [str(one["name"]) for one in self._peer.get("/v1/status").get("models", [])]
        if model is None and len(names) != 1:
            raise ConfigError(f"{endpoint} serves {', '.join(names) or 'nothing'}; choose a model with --model")
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


def status(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Show the versions and variants of a served model.

    Also shows which versions are ready for a rollback, and which were refused and why.

    Example: `elasticctr serving status --endpoint http://127.0.0.1:8500 --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, ca_file, cert_file, key_file).status(), json)


def variants(
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VARIANT",
            help="NAME=VERSION[:WEIGHT][:shadow], or NAME=MODEL for another model of the server; none: end the "
            "experiment.",
        ),
    ] = None,
    sticky: Annotated[
        str | None, typer.Option(help="Request field whose value decides the variant; default: chance.")
    ] = None,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Start, change or end an experiment between versions.

    The weights are shares of the traffic; the live version gets the rest.

    Example: `elasticctr serving variants b=8:0.1 c=9:0.05:shadow --sticky user_id --model ctr`
    """
    parsed = [parse_variant(text) for text in variants or []]
    remote = _Remote(endpoint, model, token_file, ca_file, cert_file, key_file)
    _show(remote.command("variants", {"variants": parsed, "sticky": sticky}), json)


def promote(
    variant: Annotated[str, typer.Argument(metavar="VARIANT", help="Name of the variant.")],
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Make a variant's version live and end the experiment.

    Example: `elasticctr serving promote b --model ctr`
    """
    remote = _Remote(endpoint, model, token_file, ca_file, cert_file, key_file)
    _show(remote.command("promote", {"variant": variant}), json)


def activate(
    version: Annotated[int, typer.Argument(metavar="VERSION", help="Version in the repository.", min=1)],
    wait: Wait = 60.0,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Activate a version and hold it.

    Newly published versions are not activated until `elasticctr serving resume`.

    Example: `elasticctr serving activate 7 --model ctr`
    """
    remote = _Remote(endpoint, model, token_file, ca_file, cert_file, key_file)
    remote.command("activate", {"version": version})
    _show(remote.wait_live(version, wait), json)


def rollback(
    wait: Wait = 60.0,
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Return to the previously live version and hold it.

    Immediate if that version is still ready. Newly published versions are not activated until `elasticctr serving
    resume`. Other servers are not affected: `elasticctr versions rollback` changes the live version for all of them.

    Example: `elasticctr serving rollback --model ctr`
    """
    remote = _Remote(endpoint, model, token_file, ca_file, cert_file, key_file)
    status = remote.command("rollback")
    _show(remote.wait_live(int(status["held"] or status["announced"] or status["live"]), wait), json)


def pause(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Stop activating newly published versions.

    `elasticctr serving resume` ends the pause.

    Example: `elasticctr serving pause --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, ca_file, cert_file, key_file).command("pause"), json)


def resume(
    endpoint: Endpoint = DEFAULT,
    model: Model = None,
    token_file: ClientToken = None,
    ca_file: CaOption = None,
    cert_file: ClientCertOption = None,
    key_file: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Follow newly published versions again.

    Ends a pause, a manual activation or a rollback.

    Example: `elasticctr serving resume --model ctr`
    """
    _show(_Remote(endpoint, model, token_file, ca_file, cert_file, key_file).command("resume"), json)


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
