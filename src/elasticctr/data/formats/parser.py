"""Text blocks → batches: the native parsers of the formats feasign, slot, criteo, libsvm and libffm.

Datasets, the cache and `data inspect` call it with whole lines. It knows nothing of files; docs/formats/text.md
says what each format may hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.schema import Format, Pooling, Schema
from elasticctr.errors import ConfigError

_FORMATS = {
    Format.FEASIGN: _native.TextFormat.FEASIGN,
    Format.SLOT: _native.TextFormat.SLOT,
    Format.CRITEO: _native.TextFormat.CRITEO,
    Format.LIBSVM: _native.TextFormat.LIBSVM,
    Format.LIBFFM: _native.TextFormat.LIBFFM,
}
_TRANSFORMS = {
    "none": _native.Transform.NONE,
    "log1p": _native.Transform.LOG1P,
    "scale": _native.Transform.SCALE,
}

TEXT_FORMATS = frozenset(_FORMATS)


@dataclass(frozen=True, slots=True)
class BadLine:
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The outcome of one block."""

    batch: Batch
    lines: int  # that were not empty, those outside `keep` too
    next_line: int  # number of the first line after the block
    bad: list[BadLine]  # the first hundred
    bad_count: int


class Parser:
    """Parses blocks of whole lines. May be used by several threads at once; the GIL is free while it works.

    `keep` is the share of lines to keep, by the hash of the line: [0, 0.9) and [0.9, 1) never overlap.
    `threads`: None for the process-wide pool; with 1, all work is done by the calling thread.
    `require_label`: with False a missing label is NaN and not a bad line, for logs to be scored.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        keep: tuple[float, float] = (0.0, 1.0),
        split_seed: int = 0,
        threads: int | None = None,
        require_label: bool = True,
    ) -> None:
        self.schema = schema
        split = _native.Split(keep[0], keep[1], split_seed)
        self._native = _native.Parser(make_spec(schema, require_label), split, threads or 0)

    def parse(self, block: bytes | bytearray | memoryview, first_line: int = 1) -> Parsed:
        """The samples of `block`, whose first line has the number `first_line`."""
        parsed = self._native.parse(block, first_line)
        batch = Batch(
            self.schema, parsed.labels, parsed.dense, parsed.values, parsed.offsets, parsed.weights, parsed.shows
        )
        bad = [BadLine(b.line, b.reason) for b in parsed.bad]
        return Parsed(batch, parsed.lines, parsed.next_line, bad, parsed.bad_count)


def make_spec(schema: Schema, require_label: bool) -> _native.ParserSpec:
    """What the native parser needs of a schema. ConfigError if its format is not text."""
    if schema.format not in _FORMATS:
        raise ConfigError(f"format {schema.format.value} is not read line by line; text formats: {_format_names()}")
    return make_sample_spec(schema, schema.format, require_label)


def make_sample_spec(schema: Schema, format: Format, require_label: bool) -> _native.ParserSpec:
    """The same for lines of another text format."""
    strings_by_default = format is Format.CRITEO
    sparse = [
        _native.SparseSpec(
            name=slot.name,
            hashed=slot.values == "string" or (slot.values == "auto" and strings_by_default),
            keep_last=slot.pooling is Pooling.NONE,
            max_values=slot.max_values,
            hashed_as=slot.hashed_as,
        )
        for slot in schema.sparse
    ]
    dense = [
        _native.DenseSpec(
            name=slot.name,
            dim=slot.dim,
            transform=_TRANSFORMS[slot.transform],
            min=list(slot.min),
            diff=list(slot.diff),
            marks_missing=slot.name in schema.bucketed,
        )
        for slot in schema.dense
    ]
    return _native.ParserSpec(
        format=_FORMATS[format],
        labels=list(schema.label),
        weight=schema.weight or "",
        sparse=sparse,
        dense=dense,
        hash_seed=schema.hash_seed,
        require_label=require_label,
    )


def _format_names() -> str:
    return ", ".join(sorted(format.value for format in _FORMATS))
