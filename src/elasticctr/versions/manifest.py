"""manifest.json: the contents of a version. docs/formats/version.md is the specification.

Reading one checks its shape; verification.py checks the files it lists.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elasticctr.errors import ConfigError, Corruption, DataError, FailedPrecondition

FORMAT = 1
MANIFEST = "manifest.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

Encoding = Literal["fp32", "fp16", "int8"]
Kind = Literal["base", "delta"]


class _ManifestModel(BaseModel):
    # Keys a later version adds must not stop this one from reading.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Segment(_ManifestModel):
    name: str
    dim: int = Field(ge=1)


class TableEntry(_ManifestModel):
    """One table of a version. `rows` and `gone` count what this version's own files hold."""

    encoding: Encoding
    dim: int = Field(ge=1)
    row_bytes: int = Field(ge=1)
    segments: tuple[Segment, ...]
    rows: int = Field(ge=0)
    gone: int = Field(0, ge=0)
    missing: Literal["zeros"] = "zeros"  # how a feasign without a row is read


class FileEntry(_ManifestModel):
    name: str
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(_ManifestModel):
    format: int
    model: str
    version: int = Field(ge=1)
    kind: Kind
    parent: int = Field(ge=0)
    base: int = Field(ge=1)
    chain: tuple[int, ...] = ()  # the versions this one depends on, base first; empty for a base
    created: float
    elasticctr: str
    run: dict[str, Any] = Field(default_factory=dict)
    tables: dict[str, TableEntry]
    files: tuple[FileEntry, ...]

    @model_validator(mode="after")
    def _check(self) -> Manifest:
        if self.kind == "base" and (self.parent != 0 or self.base != self.version or self.chain):
            raise ValueError("a base has no chain and no parent")
        if self.kind == "delta" and (
            not 1 <= self.base <= self.parent < self.version
            or not self.chain
            or (self.chain[0], self.chain[-1]) != (self.base, self.parent)
        ):
            raise ValueError("a delta's chain must lead from its base to its parent")
        return self

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())

    @property
    def gone(self) -> int:
        return sum(table.gone for table in self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def parts(self, table: str, kind: Literal["part", "gone"] = "part") -> list[FileEntry]:
        """The files with a table's rows, or with its dropped feasigns, in order."""
        prefix = f"sparse/{table}/{kind}-"
        return [file for file in self.files if file.name.startswith(prefix)]


def parse_manifest(data: bytes, where: str) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as e:
        first = e.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Corruption(f"{where}: not a manifest: {place + ': ' if place else ''}{first['msg']}") from None
    if manifest.format != FORMAT:
        raise FailedPrecondition(
            f"{where}: version format {manifest.format}; this ElasticCTR reads {FORMAT}. Use the release that wrote it"
        )
    return manifest


def check_name(name: str, what: str) -> str:
    """Returns a name that is safe as part of a path; raises for any other."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {name!r}: a name has up to 64 letters, digits, '_', '.' or '-' and does not start with '.' or '-'"
        )
    return name


def check_version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 1 << 63:
        raise DataError(f"{version!r} is not a version: versions are whole numbers from 1")
    return version
