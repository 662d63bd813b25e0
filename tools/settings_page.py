"""docs/reference/config.md: every key of every settings file, file by file, from the classes that read them."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from elasticctr.config import Settings
from elasticctr.cube.settings import CubeSettings
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.data.schema import Schema
from elasticctr.serve.settings import ServeSettings
from elasticctr.train.job import Job
from elasticctr.tune.settings import TuneSettings

FILES: dict[str, tuple[type[Settings], str]] = {
    "job.yaml": (Job, "One training run, for `elasticctr train` ([guide](../how-to/train.md))."),
    "schema.yaml": (
        Schema,
        "The slots of a log, in the order of columns everywhere downstream; `elasticctr data inspect --out` writes "
        "one ([guide](../how-to/prepare-data.md)).",
    ),
    "tune.yaml": (TuneSettings, "One search, for `elasticctr tune` ([guide](../how-to/tune.md))."),
    "serve.yaml": (ServeSettings, "A prediction server, for `elasticctr serve` ([guide](../how-to/serve.md))."),
    "cube.yaml": (
        CubeSettings,
        "The cube servers of one model's tables and how a client asks them, for `elasticctr serve` and "
        "`elasticctr cube get` ([guide](../how-to/cube-client.md)).",
    ),
    "transfer.yaml": (
        TransferSettings,
        "What is rolled out, and to which cube servers, for `elasticctr cube transfer` "
        "([guide](../how-to/cube-rollout.md)).",
    ),
}
HEAD = """# Settings by file

{generated}

Settings files are YAML. Commands that take no file here (`cube server`, `cube agent`, `pserver`, …) are set by
[flags](cli.md) alone.

- An unknown key is an error that suggests the nearest one.
- Precedence, lowest first: default, file, environment, command line. The environment sets keys of `job.yaml`
  (`ELASTICCTR__TRAIN__EPOCHS=1`), `serve.yaml` (`ELASTICCTR__SERVE__PORT=9000`) and `transfer.yaml`.
- Relative paths in `serve.yaml` and `cube.yaml` start at the file's folder, those in other files at the working
  directory. A job's `schema` is looked for in both.
"""
SHARED = "Sections used in several files"


@dataclass
class Section:
    """A settings class and the keys that hold it."""

    cls: type[Settings]
    file: str
    keys: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        if not self.keys:
            return f"`{self.file}`"
        return ", ".join(f"`{key}`" for key in self.keys) + "".join(f": `{tag}`" for tag in _tags(self.cls))

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def config_page(generated: str) -> str:
    sections = _sections()
    by_class = {section.cls: section for section in sections}
    parts = [HEAD.format(generated=generated)]
    written = ""
    for section in sections:
        if section.file != written:
            written = section.file
            about = FILES[written][1] if written in FILES else f"## {SHARED}"
            parts += [f"## `{written}`", "", about, ""] if written in FILES else [about, ""]
        if section.keys:
            parts += [f"### {section.heading}", "", " ".join((section.cls.__doc__ or "").split()), ""]
        parts += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for name, info in section.cls.model_fields.items():
            kind = _type(info.annotation, by_class)
            parts.append(f"| `{info.alias or name}` | {kind} | {_value(info)} | {cell(describe(info))} |")
        if section.keys == ["model"]:
            parts.append("| … | | | the settings of that model: see [its page](../models/index.md) |")
        parts.append("")
    return "\n".join(parts)


def _sections() -> list[Section]:
    """Files in the order of FILES; in a file, classes in the order their keys are met. Shared ones come last."""
    users: dict[type[Settings], set[str]] = {}
    for file, (root, _) in FILES.items():
        for cls, _key in _walk(root, ""):
            users.setdefault(cls, set()).add(file)
    roots = {root for root, _ in FILES.values()}
    found: list[Section] = []
    shared: dict[type[Settings], Section] = {}
    for file, (root, _) in FILES.items():
        own = {root: Section(root, file)}
        for cls, key in _walk(root, ""):
            if cls in roots:
                continue
            at = shared if len(users[cls]) > 1 else own
            section = at.setdefault(cls, Section(cls, SHARED if at is shared else file))
            shown = key if at is own else key.rpartition(".")[2]
            if shown not in section.keys:
                section.keys.append(shown)
        found += own.values()
    return [*found, *shared.values()]


def _walk(cls: type[Settings], path: str) -> Iterator[tuple[type[Settings], str]]:
    """Settings classes below a class with the path of the key that holds each; a file of its own is not entered."""
    for name, info in cls.model_fields.items():
        key = info.alias or name
        for inner, mark in _settings_in(info.annotation, ""):
            inner_path = f"{path}.{key}{mark}".removeprefix(".")
            yield inner, inner_path
            if inner not in {root for root, _ in FILES.values()}:
                yield from _walk(inner, inner_path)


def _settings_in(annotation: Any, mark: str) -> Iterator[tuple[type[Settings], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation, mark
        return
    origin = typing.get_origin(annotation)
    inner = "[]" if origin in (tuple, list) else ".NAME" if origin is dict else ""
    args = typing.get_args(annotation)
    for arg in args[:1] if origin is typing.Annotated else args:
        yield from _settings_in(arg, mark + inner)


def _tags(cls: type[Settings]) -> list[str]:
    """`adam` of classes that the key `name` or `kind` chooses between."""
    return [
        str(typing.get_args(info.annotation)[0])
        for name, info in cls.model_fields.items()
        if name in ("name", "kind") and _is_constant(info)
    ]


def _is_constant(info: FieldInfo) -> bool:
    return typing.get_origin(info.annotation) is typing.Literal and len(typing.get_args(info.annotation)) == 1


def describe(field: FieldInfo) -> str:
    """A key with one possible value needs no description: it says which settings these are."""
    return field.description or ("selects these settings" if _is_constant(field) else "")


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


def _type(annotation: Any, sections: dict[type[Settings], Section]) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0], sections)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(arg, sections) for arg in args if arg is not type(None))
    if origin in (tuple, list, set, frozenset):
        inner = [arg for arg in args if arg is not Ellipsis]
        return "list of " + " and ".join(dict.fromkeys(_type(arg, sections) for arg in inner))
    if origin is dict:
        return f"map of {_type(args[0], sections)} to {_type(args[1], sections)}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        section = sections[annotation]
        shown = (_tags(annotation) or [section.keys[0] if section.keys else section.file])[0]
        return f"[`{shown}`](#{section.anchor})"
    name = getattr(annotation, "__name__", str(annotation))
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Path": "path"}.get(name, name)


def cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
