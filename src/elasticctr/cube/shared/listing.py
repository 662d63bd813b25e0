"""`shard.json` and `build.json` (docs/formats/cube-directory.md) as untrusted input: checked, then frozen."""

from __future__ import annotations

from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from elasticctr.cube.shared.names import check_digest, check_file, check_model, parse_shard_directory
from elasticctr.errors import Corruption, DataError

L = TypeVar("L", bound=BaseModel)

# Large enough for 4096 shards, or for as many tables as one directory can have.
MAX_LISTING_BYTES = 4 << 20
MAX_FILE_BYTES = 1 << 44


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CubeFile(_Listed):
    table: str
    name: str
    size: int = Field(alias="bytes", ge=1, le=MAX_FILE_BYTES)
    sha256: str
    rows: int = Field(ge=0)
    tombstones: int = Field(0, ge=0)

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not check_file(name).endswith(".cube"):
            raise DataError(f"{name!r} is not the name of an index file, NAME.cube")
        return name

    @field_validator("table")
    @classmethod
    def _table(cls, table: str) -> str:
        return check_model(table)

    @field_validator("sha256")
    @classmethod
    def _sha256(cls, digest: str) -> str:
        return check_digest(digest)


class _Origin(_Listed):
    """What both listings say about their version."""

    format: Literal[1]
    model: str
    version: int = Field(ge=1)
    kind: Literal["base", "delta"]
    parent: int = Field(ge=0)
    shards: int = Field(ge=1, le=4096)
    sharding: Literal["buckets", "modulo"] = "buckets"

    @model_validator(mode="after")
    def _check_parent(self) -> Self:
        check_model(self.model)
        if (self.kind == "base") != (self.parent == 0) or self.parent >= self.version:
            raise DataError(f"a {self.kind} of version {self.version} cannot have parent {self.parent}")
        return self


class ShardListing(_Origin):
    shard: int = Field(ge=0)
    files: tuple[CubeFile, ...] = Field(min_length=1, max_length=4096)

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.shard >= self.shards:
            raise DataError(f"shard {self.shard} of {self.shards}")
        if len({file.name for file in self.files}) != len(self.files):
            raise DataError("a file is listed twice")
        return self

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)


class ShardFile(_Listed):
    name: str
    size: int = Field(alias="bytes", ge=1, le=MAX_LISTING_BYTES)
    sha256: str

    @field_validator("sha256")
    @classmethod
    def _sha256(cls, digest: str) -> str:
        return check_digest(digest)


class BuildListing(_Origin):
    shard_files: tuple[ShardFile, ...] = Field(min_length=1)
    rows: int = Field(0, ge=0)
    size: int = Field(0, alias="bytes", ge=0)

    @model_validator(mode="after")
    def _check_shards(self) -> Self:
        found = []
        for file in self.shard_files:
            directory, _, name = file.name.partition("/")
            if name != "shard.json":
                raise DataError(f"{file.name!r} is not a shard's shard.json")
            found.append(parse_shard_directory(directory))
        if found != [(shard, self.shards) for shard in range(self.shards)]:
            raise DataError(f"its shards are not 0 to {self.shards - 1} in order")
        return self


def parse_shard(data: bytes, source: str) -> ShardListing:
    return _parse(ShardListing, data, source)


def parse_build(data: bytes, source: str) -> BuildListing:
    return _parse(BuildListing, data, source)


def _parse(cls: type[L], data: bytes, source: str) -> L:
    if len(data) > MAX_LISTING_BYTES:
        raise Corruption(f"{source}: a listing of {len(data)} bytes; at most {MAX_LISTING_BYTES} are allowed")
    try:
        return cls.model_validate_json(data)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Corruption(f"{source}: not a usable listing: {where}: {first['msg']}") from None
    except DataError as e:
        raise Corruption(f"{source}: not a usable listing: {e}") from None
