"""Vocabularies: which feasigns are worth a row, known before training. docs/formats/vocabulary.md has the file.

Feasigns are counted by table, over all its slots, derived ones too, as rows are. What is not in a table's vocabulary is
looked up as its slot's own feasign for such values, `oov_feasign`; docs/decisions/0006-vocabulary.md says why.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.data.derive import Bags, Deriver
from elasticctr.data.schema import Schema
from elasticctr.errors import ConfigError, Corruption, NotFound
from elasticctr.storage.atomic import atomic_file

_MAGIC = b"ECTRVOC\0"
_FORMAT = 1
_HEAD = struct.Struct("<8sII")
_MAX_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The feasigns of each table that get rows, ascending."""

    tables: Mapping[str, NDArray[np.uint64]]
    min_count: int
    samples: int  # counted
    distinct: Mapping[str, int]  # feasigns of each table, before rare ones were dropped

    def save(self, path: Path, overwrite: bool = False) -> None:
        tables = [
            {"name": name, "feasigns": len(feasigns), "distinct": self.distinct[name]}
            for name, feasigns in self.tables.items()
        ]
        header = json.dumps({"min_count": self.min_count, "samples": self.samples, "tables": tables}).encode()
        parts = [_HEAD.pack(_MAGIC, _FORMAT, len(header)), header]
        parts += [np.ascontiguousarray(feasigns, dtype="<u8").tobytes() for feasigns in self.tables.values()]
        body = b"".join(parts)
        with atomic_file(path, overwrite=overwrite) as stream:
            stream.write(body)
            stream.write(struct.pack("<I", _native.checksum(np.frombuffer(body, dtype=np.uint8))))

    @staticmethod
    def load(path: Path) -> Vocabulary:
        """Raises NotFound, or Corruption for anything but a whole vocabulary file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"{path}: there is no vocabulary; make one with: elasticctr data vocabulary") from None
        except OSError as e:
            raise ConfigError(f"{path}: cannot be read: {e.strerror}") from None
        wrong = Corruption(f"{path}: is not a whole vocabulary file; make it again with: elasticctr data vocabulary")
        if len(data) < _HEAD.size + 4:
            raise wrong
        magic, format, size = _HEAD.unpack_from(data)
        (checksum,) = struct.unpack("<I", data[-4:])
        if magic != _MAGIC or format != _FORMAT or size > min(_MAX_HEADER, len(data) - _HEAD.size - 4):
            raise wrong
        if checksum != _native.checksum(np.frombuffer(data[:-4], dtype=np.uint8)):
            raise wrong
        try:
            header = json.loads(data[_HEAD.size : _HEAD.size + size])
            counts = {str(t["name"]): int(t["feasigns"]) for t in header["tables"]}
            distinct = {str(t["name"]): int(t["distinct"]) for t in header["tables"]}
            min_count, samples = int(header["min_count"]), int(header["samples"])
        except (ValueError, KeyError, TypeError):
            raise wrong from None
        rest = data[_HEAD.size + size : -4]
        if len(rest) != 8 * sum(counts.values()) or min(counts.values(), default=0) < 0:
            raise wrong
        tables, start = {}, 0
        for name, count in counts.items():
            tables[name] = np.frombuffer(rest, dtype="<u8", count=count, offset=start).astype(np.uint64)
            start += 8 * count
        return Vocabulary(tables, min_count, samples, distinct)


def count_vocabulary(
    schema: Schema, batches: Iterable[Batch], min_count: int, advance: Callable[[int], None] = lambda count: None
) -> Vocabulary:
    """Exact: every value of every batch is counted. `advance` gets the samples counted."""
    deriver = Deriver(schema)
    counters = {slot.table: _native.FeasignCounter() for slot in schema.embedded}
    samples = 0
    for batch in batches:
        values, offsets = deriver.bags(batch)
        n = len(batch)
        for number, slot in enumerate(schema.embedded):
            counters[slot.table].add(values[offsets[number * n] : offsets[(number + 1) * n]])
        samples += n
        advance(n)
    kept = {table: counter.take(min_count) for table, counter in counters.items()}
    return Vocabulary(kept, min_count, samples, {table: len(counter) for table, counter in counters.items()})


def oov_feasign(slot: str, hash_seed: int) -> int:
    """What stands for all values of a slot outside the vocabulary: the hash of an empty string, which no log yields."""
    return _native.feature_hash(slot, b"", hash_seed)


class Replacer:
    """Puts each slot's own feasign in place of values outside the vocabulary. Several threads may use it at once."""

    def __init__(self, schema: Schema, vocabulary: Vocabulary) -> None:
        missing = {slot.table for slot in schema.embedded} - set(vocabulary.tables)
        if missing:
            raise ConfigError(f"the vocabulary was made by another schema: it has no table {sorted(missing)[0]!r}")
        sets = {name: _native.FeasignSet(feasigns) for name, feasigns in vocabulary.tables.items()}
        self._slots = [(sets[slot.table], oov_feasign(slot.name, schema.hash_seed)) for slot in schema.embedded]

    def replace(self, bags: Bags, samples: int) -> Bags:
        values, offsets = bags[0].copy(), bags[1]
        for number, (known, oov) in enumerate(self._slots):
            known.replace(values, int(offsets[number * samples]), int(offsets[(number + 1) * samples]), oov)
        return values, offsets
