"""Turns files of samples into requests: unchanged lines for text formats, slots by name for Parquet, feasigns if a
schema says how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticctr.data.dataset import Dataset
from elasticctr.data.formats.arrow_errors import explain_arrow
from elasticctr.data.formats.blocks import iter_blocks
from elasticctr.data.schema import Format, Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError, DataError
from elasticctr.storage import Source, resolve


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the arguments of `PredictClient.predict`."""

    count: int  # samples
    samples: list[dict[str, Any]] | None = None
    lines: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # format, values, ignore_unknown


def read_requests(
    locations: Sequence[str], batch: int, format: Format | None = None, schema: Schema | None = None
) -> Iterator[Asked]:
    """Requests of up to `batch` samples, file by file. Raises NotFound, DataError, ConfigError."""
    for source in resolve(list(locations)):
        kind = format or _format_by_name(source.path)
        if kind in (Format.CSV, Format.PARQUET) and schema is not None:
            yield from _with_schema(source.path, schema.model_copy(update={"format": kind}), batch)
        elif kind is Format.PARQUET:
            yield from _parquet(source, batch)
        elif kind is Format.CSV:
            raise ConfigError(
                f"{source.path}: CSV cells are text; give --schema FILE to say which are numbers and how they are split"
            )
        else:
            yield from _lines(source, batch, kind)


def _format_by_name(path: str) -> Format | None:
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    return Format.PARQUET if name.endswith(".parquet") else Format.CSV if name.endswith(".csv") else None


def _lines(source: Source, batch: int, kind: Format | None) -> Iterator[Asked]:
    options = {} if kind is None else {"format": str(kind)}
    waiting: list[str] = []
    with source.open() as stream:
        for block in iter_blocks(stream):
            if block.bad:
                raise DataError(block.bad[0].reason, source.path, block.line)
            try:
                text = str(block.data, "utf-8")
            except UnicodeDecodeError as e:
                line = block.line + bytes(block.data[: e.start]).count(b"\n")
                raise DataError("not UTF-8, which JSON requires", source.path, line) from None
            waiting += [line for line in text.split("\n") if line and line != "\r"]
            whole = len(waiting) // batch * batch
            for start in range(0, whole, batch):
                yield Asked(batch, lines=waiting[start : start + batch], options=options)
            del waiting[:whole]
    if waiting:
        yield Asked(len(waiting), lines=waiting, options=options)


def _parquet(source: Source, batch: int) -> Iterator[Asked]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with source.open_seekable() as file:
        try:
            for rows in pq.ParquetFile(file).iter_batches(batch):
                samples = [{k: v for k, v in row.items() if v is not None} for row in rows.to_pylist()]
                yield Asked(len(samples), samples=samples, options={"ignore_unknown": True})
        except (pa.ArrowException, OSError, MemoryError) as e:
            raise explain_arrow(e, source.path, "not a complete Parquet file: {}") from None


def _with_schema(path: str, schema: Schema, batch: int) -> Iterator[Asked]:
    dataset = Dataset(path, schema, ReadOptions(on_bad="fail"), require_label=False)
    with dataset.iterate(batch) as batches:
        for rows in batches:
            samples: list[dict[str, Any]] = [{} for _ in range(len(rows))]
            for number, slot in enumerate(schema.sparse):
                values, offsets = rows.slot(number)
                for i, sample in enumerate(samples):
                    if offsets[i + 1] > offsets[i]:
                        sample[slot.name] = values[offsets[i] : offsets[i + 1]].tolist()
            column = 0
            for dense in schema.dense:
                cells = rows.dense[:, column : column + dense.dim].tolist()
                for sample, cell in zip(samples, cells, strict=True):
                    sample[dense.name] = cell if dense.dim > 1 else cell[0]
                column += dense.dim
            yield Asked(len(rows), samples=samples, options={"values": "feasigns"})


def repeat_requests(make: Iterable[Asked], times: int) -> Iterator[Asked]:
    """Repeats all of them `times` times. Keeps them in memory if that is more than once."""
    if times == 1:
        yield from make
        return
    kept = []
    for asked in make:
        kept.append(asked)
        yield asked
    for _ in range(times - 1):
        yield from kept
