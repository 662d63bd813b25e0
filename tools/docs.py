"""Writes docs/cli.md and docs/config.md from the commands and settings themselves, and the table of docs/security.md
from the tests; --check only compares.

python tools/docs.py [--check]
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import promises
import typer.main
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import elasticctr
from elasticctr.cli.app import app
from elasticctr.cli.tree import LazyCommand
from elasticctr.config import Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
GENERATED = "<!-- Written by tools/docs.py; change the command or setting, then run `make docs`. -->"
# Settings that programs make; nobody writes them into a file.
NOT_IN_FILES = {"elasticctr.data.cache.manifest", "elasticctr.data.synth.spec"}


def main() -> int:
    pages = {"cli.md": cli_page(), "config.md": config_page(), "security.md": security_page()}
    stale = [name for name, text in pages.items() if not _is_current(DOCS / name, text)]
    if "--check" in sys.argv[1:]:
        for name in stale:
            sys.stderr.write(f"docs/{name} is not current; run `make docs`\n")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    return 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def security_page() -> str:
    return promises.fill((DOCS / "security.md").read_text(encoding="utf-8"))


def commands() -> list[tuple[str, Any]]:
    """Every command with its full name, in the order help shows them, groups before what is in them."""
    found: list[tuple[str, Any]] = []

    def walk(name: str, command: Any) -> None:
        command = command.load() if isinstance(command, LazyCommand) else command
        found.append((name, command))
        for child, inner in getattr(command, "commands", {}).items():
            walk(f"{name} {child}", inner)

    walk("elasticctr", typer.main.get_command(app))
    return found


def cli_page() -> str:
    parts = ["# Commands", "", GENERATED, ""]
    for name, command in commands():
        parts += [f"{'#' * min(name.count(' ') + 2, 4)} `{name}`", "", _paragraphs(command.help or ""), ""]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        if not hasattr(command, "commands"):
            parts += ["```", f"{name} {' '.join([*(_usage(a) for a in arguments), '[OPTIONS]'])}", "```", ""]
        if arguments or options:
            parts += ["| option | meaning | default |", "| --- | --- | --- |"]
            parts += [f"| `{_usage(a)}` | {_cell(a.help)} | |" for a in arguments]
            hints = typing.get_type_hints(inspect.unwrap(command.callback)) if command.callback else {}
            parts += [f"| {_flags(o, hints)} | {_cell(o.help)} | {_default(o)} |" for o in options]
            parts.append("")
    return "\n".join(parts)


def _paragraphs(help: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in help.split("\n\n"))


def _usage(argument: Any) -> str:
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _flags(option: Any, hints: dict[str, Any]) -> str:
    if option.is_flag:
        return f"`{', '.join([*option.opts, *option.secondary_opts])}`"
    return f"`{', '.join(option.opts)}` {_choices(hints.get(option.name)) or '…'}"


def _choices(annotation: Any) -> str:
    """What an option can be, if that is a short list."""
    args = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    if typing.get_origin(annotation) is typing.Literal:
        return "\\|".join(str(arg) for arg in args)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "\\|".join(str(member.value) for member in annotation)
    return _choices(args[0]) if len(args) == 1 else ""


def _default(option: Any) -> str:
    value = option.show_default if isinstance(option.show_default, str) else option.default
    if value is None or value is False or value in ((), "") or callable(value) or option.name == "help":
        return ""
    if value is True:
        value = option.opts[0]
    return f"`{value.value if isinstance(value, Enum) else value}`"


def settings_classes() -> list[type[Settings]]:
    """Every settings class a file may hold, by module and then in order of definition."""
    for module in pkgutil.walk_packages(elasticctr.__path__, "elasticctr."):
        if not module.name.rsplit(".", 1)[-1].startswith("_"):
            importlib.import_module(module.name)
    found: list[type[Settings]] = []
    queue: list[type[Settings]] = [Settings]
    while queue:
        for cls in queue.pop().__subclasses__():
            queue.append(cls)
            is_ours = cls.__module__.startswith("elasticctr.") and cls.__module__ not in NOT_IN_FILES
            if is_ours and not cls.__name__.startswith("_") and cls not in found:
                found.append(cls)
    return sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


def config_page() -> str:
    parts = ["# Settings", "", GENERATED, ""]
    parts += [
        "Settings are YAML. An unknown key is an error that names the nearest one. Precedence: default, then file,",
        "",
    ]
    parts[-1:] = ["then `ELASTICCTR__SECTION__KEY` in the environment, then the command line.", ""]
    for cls in settings_classes():
        parts += [f"## {cls.__name__}", "", _paragraphs((cls.__doc__ or "").strip()), ""]
        parts += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for name, field in cls.model_fields.items():
            shown = field.alias or name
            parts.append(f"| `{shown}` | {_type(field.annotation)} | {_value(field)} | {_cell(describe(field))} |")
        parts.append("")
    return "\n".join(parts)


def describe(field: FieldInfo) -> str:
    """A key with one possible value needs no description: it says which settings these are."""
    if typing.get_origin(field.annotation) is typing.Literal and len(typing.get_args(field.annotation)) == 1:
        return field.description or "says that these are meant"
    return field.description or ""


def _value(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if isinstance(value, Settings):
        return "its defaults"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (bool, tuple, list, dict)):
        value = json.dumps(value)
    return "" if value is None else f"`{value}`".replace("|", "\\|")


def _type(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(arg) for arg in args if arg is not type(None))
    if origin in (tuple, list, set, frozenset):
        inner = [arg for arg in args if arg is not Ellipsis]
        return "list of " + " and ".join(dict.fromkeys(_type(arg) for arg in inner))
    if origin is dict:
        return f"map of {_type(args[0])} to {_type(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation))
    )


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
