"""Makes a version that scores, natively and without torch, from schema.json, an ONNX graph and rows.

    served = open_version(repository, "ctr", 7, LocalRows([store], "ctr"))
    served.score(batch).scores

loading.py makes the native object alone; checks and tests score with the wrapper.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.cube.client import CubeClient
from elasticctr.data.batch import Batch
from elasticctr.data.derive import make_native
from elasticctr.data.formats.parser import TEXT_FORMATS, make_spec
from elasticctr.data.schema import Format, RowSlot, Schema, SparseSlot
from elasticctr.errors import ConfigError, Corruption
from elasticctr.serve.settings import PolicySettings
from elasticctr.versions.repository import Repository
from elasticctr.versions.serving_schema import SCHEMA, PooledSlot, SequenceSlot, ServingSchema, parse_serving_schema
from elasticctr.versions.verification import GRAPH

ALL_DENSE = "dense_input"  # as Paddle Serving's clients call all dense values together
INSTALL = "install it with: pip install onnxruntime"


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in this process: the stores of all shards, in order, which hold the requested version of `model`."""

    stores: Sequence[_native.CubeStore]
    model: str


@dataclass(frozen=True, slots=True)
class CubeRows:
    """Rows on the servers of a Cube, of exactly the requested version."""

    client: CubeClient
    model: str


Rows = LocalRows | CubeRows


@dataclass(frozen=True, slots=True)
class Scores:
    scores: NDArray[np.float32]  # [n, labels]
    asked: int
    found: int
    reasons: list[str]  # why the answer is degraded
    is_split: bool  # shared values went through the first layer once per request


@dataclass(frozen=True, slots=True)
class Served:
    """A version and its schema. Threads: any number may score."""

    native: _native.ServedVersion
    schema: ServingSchema

    def score(self, batch: Batch, shared: Batch | None = None, timeout_ms: int = 0) -> Scores:
        """Scores the samples of `batch` as one request. For slots without values of their own they use those of
        `shared`, a single sample."""
        return self.score_requests([(batch, shared)], timeout_ms)[0]

    def score_requests(self, requests: Sequence[tuple[Batch, Batch | None]], timeout_ms: int = 0) -> list[Scores]:
        """Scores several requests in one micro-batch: the samples of each, and their shared values."""
        arrays = [(_arrays(batch), None if shared is None else _arrays(shared)) for batch, shared in requests]
        return [Scores(*scored) for scored in self.native.score_requests(arrays, timeout_ms)]

    def score_lines(self, text: bytes, format: _native.TextFormat | None = None) -> Scores:
        """Scores lines of a text format; None means the schema's format."""
        return Scores(*self.native.score_lines(text, format))


def open_version(
    repository: Repository, model: str, version: int, rows: Rows, policy: PolicySettings | None = None
) -> Served:
    """Opens schema and graph of a version in a repository, checked against the manifest. REQUIRES: `rows` are ready."""
    where = f"{repository.url}/{model}/{version}"
    schema = parse_serving_schema(repository.read_file(model, version, SCHEMA), f"{where}/{SCHEMA}")
    onnx = repository.read_file(model, version, GRAPH)
    return Served(make_served_version(model, version, schema, onnx, rows, policy, f"{where}/{GRAPH}"), schema)


def make_served_version(
    model: str,
    version: int,
    schema: ServingSchema,
    onnx: bytes,
    rows: Rows,
    policy: PolicySettings | None,
    where: str,
    paddle_feeds: Mapping[str, str] | None = None,
    whole_because: str = "",
) -> _native.ServedVersion:
    """`where` names the graph in errors; `whole_because` says why it must not be split after its first layer. Raises
    ConfigError (no ONNX Runtime, paddle_feeds of unknown slots), Corruption (parts that do not fit together), NotFound
    and FailedPrecondition (rows that are missing or of another shape)."""
    plan = make_plan(schema, where, paddle_feeds or {})
    names = list(schema.tables)
    return _native.ServedVersion(
        model=model,
        version=version,
        plan=plan,
        rows_model=rows.model,
        stores=list(rows.stores) if isinstance(rows, LocalRows) else [],
        clients=[] if isinstance(rows, LocalRows) else [rows.client.native_of(f"{rows.model}/{t}") for t in names],
        onnx=onnx,
        library=str(find_library()),
        policy=_make_policy(policy or PolicySettings()),
        where=where,
        whole_because=whole_because,
    )


def make_plan(schema: ServingSchema, where: str, paddle_feeds: Mapping[str, str] | None = None) -> _native.ServePlan:
    """How to process a sample. Raises Corruption if the schema contradicts itself."""
    samples = schema.samples
    _check_feeds(paddle_feeds or {}, samples)
    tables = {name: number for number, name in enumerate(schema.tables)}
    slots: list[PooledSlot | SequenceSlot] = [*schema.pooled, *schema.sequences]
    used = {slot.number: slot for slot in slots if slot.table in tables}
    columns = {dense.slot: dense.column for dense in schema.dense}
    if len(used) != len(slots) or any(n >= len(samples.embedded) for n in used):
        raise Corruption(f"{where}: schema.json names slots or tables that do not exist; publish it again")
    try:
        return _native.ServePlan(
            spec=make_spec(_as_text(samples), require_label=False),
            sparse=[_make_slot(slot, used.get(i), tables, samples.format) for i, slot in enumerate(samples.embedded)],
            dense_columns=[columns.get(slot.name, 0) for slot in samples.dense],
            tables=[(name, table.dim) for name, table in schema.tables.items()],
            labels=list(schema.labels),
            pooled_width=schema.pooled_width,
            dense_width=schema.dense_width,
            paddle_feeds=list((paddle_feeds or {}).items()),
            derived=make_native(samples),
        )
    except ConfigError as e:
        raise Corruption(f"{where}: {e}; publish it again") from None


def _check_feeds(feeds: Mapping[str, str], schema: Schema) -> None:
    names = {ALL_DENSE} | {slot.name for slot in schema.sparse} | {slot.name for slot in schema.dense}
    for feed, slot in feeds.items():
        if slot not in names:
            raise ConfigError(f"paddle_feeds: {feed!r} feeds {slot!r}, which is not a slot of the model")


def find_library() -> Path:
    """libonnxruntime of the installed package, whose Python code is not imported."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"serving needs ONNX Runtime; {INSTALL}")
    folders = [Path(folder) / "capi" for folder in spec.submodule_search_locations]
    found = [path for folder in folders for path in folder.glob("libonnxruntime.so*")]
    if not found:
        raise ConfigError(f"{folders[0]} has no libonnxruntime.so, like releases before 1.20; {INSTALL}")
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])


def _make_slot(
    slot: RowSlot, used: PooledSlot | SequenceSlot | None, tables: dict[str, int], format: Format
) -> _native.ServeSlot:
    is_typed = format is Format.PARQUET and isinstance(slot, SparseSlot) and slot.values == "auto"
    if used is None:
        return _native.ServeSlot(is_typed=is_typed)
    table = tables[used.table]
    if isinstance(used, SequenceSlot):
        return _native.ServeSlot(
            table=table,
            pooling="none",
            row=used.row,
            dim=used.dim,
            max_values=used.max_values,
            input=used.input,
            lengths=used.lengths,
            is_typed=is_typed,
            oov=used.oov,
        )
    pieces = [(piece.row, piece.dim, piece.column) for piece in used.pieces]
    pooling: Literal["sum", "mean"] = used.pooling
    return _native.ServeSlot(
        table=table,
        pooling=pooling,
        pieces=pieces,
        max_values=used.max_values,
        is_typed=is_typed,
        oov=used.oov,
    )


def _as_text(schema: Schema) -> Schema:
    """A schema of CSV or Parquet as one of text. In CSV every value is a string unless the schema says id."""
    if schema.format in TEXT_FORMATS:
        return schema
    slots = [
        slot.model_copy(update={"values": "string"})
        if isinstance(slot, SparseSlot) and slot.values == "auto" and schema.format is Format.CSV
        else slot
        for slot in schema.slots
    ]
    return schema.model_copy(update={"format": Format.SLOT, "slots": tuple(slots)})


def _make_policy(policy: PolicySettings) -> _native.ServePolicy:
    return _native.ServePolicy(
        fails_on_missing=policy.missing_rows == "fail",
        min_coverage=policy.min_coverage,
        fails_on_dead_shard=policy.dead_shards == "fail",
        fails_on_late_cube=policy.late_cube == "fail",
        cube_timeout_ms=policy.cube_timeout_ms,
    )


def _arrays(batch: Batch) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.float32]]:
    return batch.values, batch.offsets, np.ascontiguousarray(batch.dense, dtype=np.float32)
