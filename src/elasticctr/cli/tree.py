"""The command tree: groups that know their commands by name and short help, and import a command when it is needed.

`app.py` has the table of commands. Every error below the root ends here, in one shape and with the status of its kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from elasticctr.cli.output import print_error, print_json
from elasticctr.errors import ElasticCTRError, InternalError

# What typer raises for a wrong flag or argument, whichever click it stands on.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
USAGE_STATUS = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, or with `commands` a group."""

    help: str
    target: str = ""  # "package.module:function" below elasticctr.cli
    panel: str | None = None
    commands: Mapping[str, Entry] = field(default_factory=dict)


class LazyCommand(TyperCommand):
    """What a listing shows of a command. `load` imports the command itself."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.help, rich_help_panel=entry.panel)
        self._target = entry.target

    def load(self) -> TyperCommand:
        module, _, function = self._target.partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(self.name)(getattr(importlib.import_module(f"elasticctr.cli.{module}"), function))
        return cast(TyperCommand, typer.main.get_command(alone))


class LazyGroup(TyperGroup):
    """A group of a table; its subclass `RootGroup` is made by typer, which has no place for the table."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, *, table: Mapping[str, Entry] | None = None, **attributes: Any) -> None:
        entries = self.table if table is None else table
        commands = {name: _make_command(name, entry) for name, entry in entries.items()}
        super().__init__(**{**attributes, "commands": commands})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name  # known to whoever explains why it cannot be imported
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


class RootGroup(LazyGroup):
    """Turns every error into its one shape and status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["elasticctr.json"] = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except _UsageError as e:
            _refuse(e, ctx)
            raise

    def invoke(self, ctx: Any) -> Any:
        error: ElasticCTRError
        try:
            return super().invoke(ctx)
        except ElasticCTRError as e:
            error = e
        except ModuleNotFoundError as e:
            from elasticctr.cli.extras import explain_missing

            missing = explain_missing(e, ctx.invoked_subcommand)
            if missing is None:
                raise
            error = missing
        except MemoryError:
            error = InternalError("the machine is out of memory; use smaller batches or fewer threads")
        except _UsageError as e:
            _refuse(e, ctx)
            raise
        print_error(error, ctx.meta["elasticctr.json"])
        raise typer.Exit(error.exit_status)


def _refuse(error: Any, ctx: Any) -> None:
    """Ends with a usage error in our shape. One without a message is a group called without a command: help is due."""
    message = str(error.format_message())
    if not message or error.ctx is None:
        return
    if ctx.meta["elasticctr.json"]:
        print_json({"error": {"code": "UsageError", "message": message}})
    else:
        typer.echo(f"elasticctr: UsageError: {message.rstrip('.')} (see `{error.ctx.command_path} --help`)", err=True)
    raise typer.Exit(USAGE_STATUS) from None


def _make_command(name: str, entry: Entry) -> TyperCommand | TyperGroup:
    if not entry.commands:
        return LazyCommand(name, entry)
    return LazyGroup(
        name=name,
        table=entry.commands,
        help=entry.help,
        rich_help_panel=entry.panel,
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )
