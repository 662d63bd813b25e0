"""The commands are one family: the same words for the same things, help everywhere, nothing imported for a listing."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.cli.tree import LazyCommand
from elasticctr.serve.settings import ServeSettings

# What one word would mean twice, and what has a word already.
NOT_IN_THE_FAMILY = {
    "--at": "--endpoint",
    "--server": "--endpoint",
    "--address": "--endpoint, or --advertise for its own",
    "--transfer": "--endpoint",
    "--url": "--endpoint",
    "--connections": "--concurrency",
    "--parallel": "--concurrency",
    "--jobs": "--concurrency",
    "--qps": "--rate",
    "--conf": "--config",
    "--job": "--config",
    "--settings": "--config",
    "--save": "--out",
    "--dir": "--out",
    "--output": "--out",
    "--force": "--overwrite",
    "--token": "--token-file",
    "--tls-ca": "--ca-file",
    "--tls-cert": "--cert-file",
    "--tls-key": "--key-file",
    "--tls-client-ca": "--client-ca-file",
}
# The pair of formats is the one place where --to is no output.
EXCEPTIONS = {("elasticctr data convert", "--to")}


def _walk(name: str, command: Any) -> dict[str, LazyCommand]:
    if isinstance(command, LazyCommand):
        return {name: command}
    return {
        found: one
        for child, inner in command.commands.items()
        for found, one in _walk(f"{name} {child}", inner).items()
    }


ROOT = typer.main.get_command(app)
COMMANDS = _walk("elasticctr", ROOT)


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    return {name: command.load() for name, command in COMMANDS.items()}


def test_the_table_says_what_the_commands_say(loaded: dict[str, Any]) -> None:
    for name, command in loaded.items():
        first = " ".join(command.help.split("\n\n")[0].split())
        assert first == COMMANDS[name].help, name
        assert first.endswith(".") and len(first) <= 90, name


def test_every_command_has_an_example_of_itself_and_json(loaded: dict[str, Any]) -> None:
    for name, command in loaded.items():
        assert f"Example: `{name}" in command.help, name
        assert any("--json" in parameter.opts for parameter in command.params), name
        for parameter in command.params:
            assert parameter.help and parameter.help[-1] in ".)}", f"{name}: {parameter.name}: {parameter.help}"


def test_options_have_one_word_for_one_thing(loaded: dict[str, Any]) -> None:
    words = NOT_IN_THE_FAMILY | {"--to": "--out, or --repo"}
    for name, command in loaded.items():
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        for option in options & words.keys():
            assert (name, option) in EXCEPTIONS, f"{name} {option}: say {words[option]}"
        if "--cert-file" in options:
            assert {"--key-file", "--ca-file"} <= options, name
        if "--port" in options:
            assert {"--host", "--token-file", "--insecure", "--client-ca-file"} <= options, name


def test_the_same_option_has_the_same_help(loaded: dict[str, Any]) -> None:
    for option in ("--json", "--set", "--ca-file", "--key-file", "--insecure", "--overwrite", "--read-token-file"):
        said = {
            parameter.help
            for name, command in loaded.items()
            for parameter in command.params
            if option in parameter.opts and (name, option) not in (("elasticctr demo", "--overwrite"),)
        }
        assert len(said) == 1, (option, said)


def test_an_option_that_mirrors_a_setting_has_its_help_bounds_and_default(loaded: dict[str, Any]) -> None:
    (port,) = (one for one in loaded["elasticctr serve"].params if one.name == "port")
    field = ServeSettings.model_fields["port"]
    assert port.help.lower() == f"{field.description}.".lower()
    assert (port.show_default, port.default) == (str(field.default), None)
    assert CliRunner().invoke(app, ["serve", "--port", "65536"]).exit_code == 2


def test_every_root_command_is_in_a_panel() -> None:
    for name, command in ROOT.commands.items():  # type: ignore[attr-defined]
        assert command.rich_help_panel, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian", "job.yaml"], "'train'"),
        (["versions", "lst"], "Did you mean 'list'?"),
        (["serve", "--modell", "ctr"], "Possible options: --model"),
        (["cube", "get", "ctr/embedding", "1", "--endpont", "h:1"], "Possible options: --endpoint"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
