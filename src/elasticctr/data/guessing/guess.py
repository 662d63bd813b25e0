"""What an unknown log is: its format and a schema to start from, guessed from its first lines or its Parquet schema.

Guesses are meant to be read and corrected by a person; `notes` says what each rests on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticctr.data.guessing.columns import LABEL_NAMES, Column, column_slots, find_label, most
from elasticctr.data.schema import DenseSlot, Format, Schema, Slot, SparseSlot
from elasticctr.errors import DataError

HEAD_BYTES = 1 << 20
_MAX_LINES = 2000
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
_FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+[eE])|-")
_HEX = re.compile(r"[0-9a-fA-F]{8}\Z")
# The scaling published with the Criteo data sets of PaddlePaddle is one choice; the log transform suits unknown data.
_CRITEO_SLOTS: tuple[Slot, ...] = (
    DenseSlot(name="dense_feature", dim=13, transform="log1p"),
    *(SparseSlot(name=str(i)) for i in range(1, 27)),
)


@dataclass(frozen=True, slots=True)
class Guess:
    schema: Schema
    notes: tuple[str, ...] = ()


def guess_text(head: bytes, path: str, format: Format | None = None, whole: bool = False) -> Guess:
    """From the first bytes of a file. `whole`: they are all of it, so that the last line counts too."""
    lines = _lines(head, path, whole)
    found = format or _format_of(lines)
    if found is Format.CRITEO:
        return Guess(Schema(format=found, slots=_CRITEO_SLOTS), ("label, 13 numbers and 26 strings between TABs",))
    if found in (Format.SLOT, Format.FEASIGN, Format.LIBSVM, Format.LIBFFM):
        return _guess_tokens(lines, found, path)
    return _guess_csv(lines, path)


def _lines(head: bytes, path: str, whole: bool) -> list[str]:
    if not head.strip():
        raise DataError("is empty", path)
    if b"\0" in head:
        raise DataError("is binary, not a text log; known are text, CSV and Parquet, plain, .gz or .zst", path)
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not whole and len(lines) > 1:
        lines.pop()
    text = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines[:_MAX_LINES] if line.strip()]
    broken = sum("\ufffd" in line or any(c < " " and c != "\t" and c != "\x01" for c in line) for line in text)
    if broken * 10 > len(text) * 3:
        raise DataError("is binary, not a text log; known are text, CSV and Parquet, plain, .gz or .zst", path)
    return text


def _format_of(lines: Sequence[str]) -> Format:
    """The format most lines agree with; a log may have a few bad ones."""
    votes: dict[Format, int] = defaultdict(int)
    for line in lines:
        votes[_format_of_line(line)] += 1
    return max(votes, key=lambda format: votes[format])


def _format_of_line(line: str) -> Format:
    cells = line.split("\t")
    numbers, strings = cells[:14], cells[14:]
    if (
        len(strings) == 26
        and all(not c or _NUMBER.match(c) for c in numbers)
        and all(not c or _HEX.match(c) for c in strings)
    ):
        return Format.CRITEO
    tokens = line.split()
    colons = [token.count(":") for token in tokens]
    if len(tokens) > 1 and colons[0] == 0 and _NUMBER.match(tokens[0]):
        if all(c == 2 for c in colons[1:]):
            return Format.LIBFFM
        if len(tokens) > 2 and colons[1] == 0 and tokens[1].isdigit() and all(c == 1 for c in colons[2:]):
            return Format.FEASIGN
        if all(c == 1 and _NUMBER.match(t.partition(":")[2]) for c, t in zip(colons[1:], tokens[1:], strict=True)):
            return Format.LIBSVM
    if tokens and all(c >= 1 and not t.startswith(":") for c, t in zip(colons, tokens, strict=True)):
        return Format.SLOT
    return Format.CSV


@dataclass(slots=True)
class _Name:
    """The observations of one slot name."""

    lines: int = 0
    most: int = 0
    fewest: int = 1 << 30
    values: list[str] = field(default_factory=list)

    def add(self, values: Sequence[str]) -> None:
        self.lines += 1
        self.most = max(self.most, len(values))
        self.fewest = min(self.fewest, len(values))
        if len(self.values) < 10_000:
            self.values.extend(values)

    @property
    def is_dense(self) -> bool:
        is_fixed = self.most == self.fewest
        return is_fixed and most(map(_NUMBER.match, self.values)) and any(map(_FRACTION.match, self.values))

    @property
    def are_ids(self) -> bool:
        return most(value.isascii() and value.isdigit() for value in self.values)


def _guess_tokens(lines: Sequence[str], format: Format, path: str) -> Guess:
    names: dict[str, _Name] = {}
    for line in lines:
        if _format_of_line(line) is not format and format is not Format.SLOT:
            continue
        seen: dict[str, list[str]] = defaultdict(list)
        for token in line.split()[{Format.SLOT: 0, Format.FEASIGN: 2}.get(format, 1) :]:
            name, colon, value = token.partition(":")
            if format is Format.FEASIGN:
                name, value = value, name
            if colon and name and value:
                seen[name].append(value)
        for name, values in seen.items():
            names.setdefault(name, _Name()).add(values)
    if not names:
        raise DataError(f"no line of the first {len(lines)} is of the {format} format", path)
    if format is Format.LIBSVM:
        return _guess_libsvm()
    label, notes = "click", [f"{len(names)} names in the first {len(lines)} lines"]
    if format is Format.SLOT:
        label = _slot_label(names, len(lines), path)
        names.pop(label)
        notes.append(f"label {label!r}: 0 or 1 in every line")
    slots = [_token_slot(name, names[name], format) for name in _in_order(list(names))]
    if not slots:
        raise DataError("holds nothing but labels", path)
    return Guess(Schema(format=format, label=(label,), slots=tuple(slots)), tuple(notes))


def _guess_libsvm() -> Guess:
    slot = SparseSlot(name="features")
    return Guess(Schema(format=Format.LIBSVM, slots=(slot,)), ("every index is a feasign of one slot",))


def _token_slot(name: str, seen: _Name, format: Format) -> Slot:
    if format is Format.SLOT and seen.is_dense:
        return DenseSlot(name=name, dim=seen.most)
    return SparseSlot(name=name, values="auto" if format is not Format.SLOT or seen.are_ids else "string")


def _slot_label(names: dict[str, _Name], lines: int, path: str) -> str:
    single = {n: seen for n, seen in names.items() if seen.most == 1 and seen.lines * 10 >= lines * 8}
    for name in LABEL_NAMES:
        # Its name says so; values that are no labels are bad lines then.
        if name in single and 2 * sum(v in ("0", "1") for v in single[name].values) >= single[name].lines:
            return name
    for name, seen in single.items():
        if most(v in ("0", "1") for v in seen.values):
            return name
    raise DataError("no slot is 0 or 1 in every line, so none can be the label; give a schema", path)


def _in_order(names: list[str]) -> list[str]:
    """Numbers by value, after names in the order they came."""
    return [n for n in names if not n.isdigit()] + sorted((n for n in names if n.isdigit()), key=int)


def _guess_csv(lines: Sequence[str], path: str) -> Guess:
    delimiter = _delimiter(lines)
    if delimiter is None:
        raise DataError(f"not a known format: the first line is {lines[0][:80]!r}; name it with --format", path)
    width = len(lines[0].split(delimiter))
    rows = [row for row in (_split(line, delimiter) for line in lines) if len(row) == width]
    header = not any(_NUMBER.match(cell) for cell in rows[0] if cell)
    names = rows[0] if header else [str(i) for i in range(width)]
    body = rows[1:] if header else rows
    if not body or len(set(names)) < len(names):
        raise DataError("no rows below the column names" if not body else "two columns have the same name", path)
    columns = [Column(name, [row[i] for row in body]) for i, name in enumerate(names)]
    label = find_label(columns)
    if label is None:
        raise DataError("no column is 0 or 1 in every row, so none can be the label; give a schema", path)
    slots = column_slots([column for column in columns if column.name != label])
    schema = Schema(format=Format.CSV, label=(label,), slots=tuple(slots), delimiter=delimiter, header=header)
    shown = {"\t": "TAB"}.get(delimiter, delimiter)
    return Guess(schema, (f"{width} columns between {shown}", "column names" if header else "no column names"))


def _delimiter(lines: Sequence[str]) -> str | None:
    """The one that cuts most lines into as many cells as the first, and into the most cells."""
    best: tuple[int, str] | None = None
    for delimiter in (",", "\t", ";", "|", "\x01"):
        width = lines[0].count(delimiter)
        agreeing = sum(line.count(delimiter) == width for line in lines)
        if width and agreeing * 10 >= len(lines) * 8 and (best is None or width > best[0]):
            best = width, delimiter
    return best and best[1]


def _split(line: str, delimiter: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(delimiter)]
