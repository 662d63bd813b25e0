"""Replays logged requests through the trainer's code: its parser and hashing, and the scoring of a version's own files.

The log has the feasigns and scores that the server computed for a request; the trainer's code must compute the same
from the same bytes. Rows are read from the version's files for a few thousand samples at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.formats.columns import to_batch
from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import Format, Schema, SparseSlot
from elasticctr.errors import Corruption, DataError, NotFound
from elasticctr.serve.feedback.decode import decode
from elasticctr.serve.feedback.decoded import Decoded, is_hashed
from elasticctr.serve.feedback.log import LoggedRequest, list_logs, open_log, parse_line, read_lines
from elasticctr.versions.repository import Repository
from elasticctr.versions.samples import SAMPLES, TOLERANCE, make_batch, read_tolerance
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA, parse_serving_schema
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.verification import GRAPH

_SAMPLES_AT_ONCE = 20_000
_DENSE_TOLERANCE = 1e-6


@dataclass(slots=True)
class Difference:
    """The first difference between server and trainer in a request."""

    id: str
    model: str
    version: int
    sample: int
    slot: str
    logged: list[Any]
    made: list[Any]


@dataclass(slots=True)
class Replay:
    """What was replayed, and how much it differed."""

    requests: int = 0
    samples: int = 0
    from_request: int = 0  # requests decoded again from their text
    from_feasigns: int = 0  # requests only scored again, from the logged feasigns
    partial: int = 0  # answered without rows because the Cube failed: only features compared
    unreadable: int = 0  # the trainer refuses what the server accepted
    bad_lines: int = 0  # of the log
    other_models: int = 0
    missing_versions: dict[str, int] = field(
        default_factory=dict
    )  # model/version → its requests; not in the repository
    worst: float = 0.0  # largest difference of a score
    tolerance: float = TOLERANCE  # the largest tolerance of the versions that answered
    worst_id: str = ""
    different_requests: int = 0  # by feasigns or dense floats
    first_difference: Difference | None = None
    unreadable_reason: str = ""

    @property
    def is_same(self) -> bool:
        return self.worst <= self.tolerance and self.first_difference is None and not self.unreadable

    def summary(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.is_same}


class Replayer:
    """`advance` is called with the requests compared."""

    def __init__(
        self, repository: Repository, model: str | None = None, advance: Callable[[int], None] = lambda count: None
    ) -> None:
        self._repository = repository
        self._model = model
        self._advance = advance
        self._pending: dict[tuple[str, int], list[LoggedRequest]] = defaultdict(list)
        self._waiting: dict[tuple[str, int], int] = defaultdict(int)
        self._versions: dict[tuple[str, int], _Version | None] = {}
        self.result = Replay()

    def run(self, logs: Sequence[str | Path]) -> Replay:
        for path in list_logs(logs):
            for number, (_, line) in enumerate(read_lines(open_log(path)), 1):
                try:
                    request = parse_line(line, path, number)
                except DataError:
                    self.result.bad_lines += 1
                    continue
                if self._model is not None and request.model != self._model:
                    self.result.other_models += 1
                    continue
                self._add(request)
        for key in list(self._pending):
            self._check(key)
        if self.result.missing_versions and not self.result.requests:
            missing = ", ".join(self.result.missing_versions)
            raise NotFound(
                f"{self._repository.url}: none of the versions that answered is in this repository: {missing}"
            )
        return self.result

    def _add(self, request: LoggedRequest) -> None:
        key = request.model, request.version
        self._pending[key].append(request)
        self._waiting[key] += len(request.samples)
        if self._waiting[key] >= _SAMPLES_AT_ONCE:
            self._check(key)

    def _check(self, key: tuple[str, int]) -> None:
        requests = self._pending.pop(key)
        self._waiting.pop(key)
        if key not in self._versions:
            try:
                self._versions[key] = _Version(self._repository, *key)
            except NotFound:
                self._versions[key] = None
        version = self._versions[key]
        if version is None:
            name = f"{key[0]}/{key[1]}"
            self.result.missing_versions[name] = self.result.missing_versions.get(name, 0) + len(requests)
            return
        self.result.tolerance = max(self.result.tolerance, version.tolerance)
        groups: dict[tuple[str, frozenset[str]], list[tuple[LoggedRequest, Decoded | None]]] = defaultdict(list)
        for request in requests:
            self.result.requests += 1
            self.result.samples += len(request.samples)
            self.result.partial += request.is_partial
            try:
                decoded = decode(request, version.schema.samples)
            except DataError as e:
                self._refuse(request, str(e))
                continue
            groups[_group(decoded)].append((request, decoded))
        for members in groups.values():
            self._compare(version, members)
        self._advance(len(requests))

    def _compare(self, version: _Version, members: list[tuple[LoggedRequest, Decoded | None]]) -> None:
        """Compares requests of one kind together, or one by one if the trainer refuses some."""
        try:
            made = version.read(members)
        except DataError as e:
            if len(members) > 1:
                for member in members:
                    self._compare(version, [member])
            else:
                self._refuse(members[0][0], str(e))
            return
        requests = [request for request, _ in members]
        count = sum(decoded is not None for _, decoded in members)
        self.result.from_request += count
        self.result.from_feasigns += len(members) - count
        logged = version.logged(requests)
        if not _same(made, logged):
            self._find_differences(requests, made, logged)
        scores = version.score(made)
        wanted = np.array([sample.scores for r in requests for sample in r.samples], np.float32).reshape(len(made), -1)
        apart = np.abs(scores - wanted).max(axis=1, initial=0.0)
        apart[np.isnan(apart)] = math.inf
        owners = [request for request in requests for _ in request.samples]
        apart[[request.is_partial for request in owners]] = 0.0
        if len(apart) and apart.max() > self.result.worst:
            at = int(apart.argmax())
            self.result.worst, self.result.worst_id = float(apart[at]), owners[at].id

    def _find_differences(self, requests: Sequence[LoggedRequest], made: Batch, logged: Batch) -> None:
        start = 0
        for request in requests:
            stop = start + len(request.samples)
            first = _first_difference(request, made.slice(start, stop), logged.slice(start, stop))
            if first is not None:
                self.result.different_requests += 1
                self.result.first_difference = self.result.first_difference or first
            start = stop

    def _refuse(self, request: LoggedRequest, reason: str) -> None:
        self.result.unreadable += 1
        self.result.unreadable_reason = self.result.unreadable_reason or f"request {request.id!r}: {reason}"


class _Version:
    """A published version as the trainer's code sees it."""

    def __init__(self, repository: Repository, model: str, version: int) -> None:
        where = f"{repository.url}/{model}/{version}"
        self._repository = repository
        self._chain = repository.chain(model, version)
        self.schema = parse_serving_schema(repository.read_file(model, version, SCHEMA), f"{where}/{SCHEMA}")
        has_samples = any(file.name == SAMPLES for file in self._chain[-1].files)
        self.tolerance = read_tolerance(repository.read_file(model, version, SAMPLES)) if has_samples else TOLERANCE
        self._graph = DenseGraph(repository.read_file(model, version, GRAPH), f"{where}/{GRAPH}")

    def read(self, members: list[tuple[LoggedRequest, Decoded | None]]) -> Batch:
        """The samples of one group of requests. Raises DataError if the trainer would refuse one."""
        first = members[0][1]
        decoded = [one for _, one in members if one is not None]
        if first is None:
            return self.logged([request for request, _ in members])
        batch = self._read_lines(decoded) if first.lines is not None else self._read_columns(decoded)
        if len(batch) != sum(len(request.samples) for request, _ in members):
            raise DataError(f"the trainer reads {len(batch)} samples, but the server answered another number")
        return batch

    def _read_lines(self, decoded: Sequence[Decoded]) -> Batch:
        schema = self.schema.samples
        # How values are parsed depends on the schema's format, not on that of the lines.
        format = Format(decoded[0].format or schema.format)
        plain = _with_values(schema, frozenset()).model_copy(update={"format": format})
        text = "".join(f"{line}\n" for one in decoded for line in one.lines or ())
        parsed = Parser(plain, threads=1, require_label=False).parse(text.encode())
        if parsed.bad_count:
            raise DataError(f"the trainer's parser refuses line {parsed.bad[0].line}: {parsed.bad[0].reason}")
        return parsed.batch

    def _read_columns(self, decoded: Sequence[Decoded]) -> Batch:
        schema = _with_values(self.schema.samples, frozenset(decoded[0].final))
        rows = sum(one.count for one in decoded)
        columns: dict[str, pa.Array] = {name: pa.nulls(rows, pa.float64()) for name in schema.label}
        for slot in schema.sparse:
            cells = [bag for one in decoded for bag in _spread(one.sparse.get(slot.name), one.count, [])]
            columns[slot.column or slot.name] = pa.array(cells, pa.list_(pa.string()))
        for dense in schema.dense:
            floats = [cell for one in decoded for cell in _spread(one.dense.get(dense.name), one.count, None)]
            columns[dense.column or dense.name] = pa.array(floats, pa.list_(pa.float64()))
        batch, bad = to_batch(schema, columns, rows, is_text=False, require_label=False)
        if bad:
            raise DataError(f"the trainer refuses sample {min(bad)}: {bad[min(bad)]}")
        return batch

    def logged(self, requests: Sequence[LoggedRequest]) -> Batch:
        """The server's features, from the log."""
        schema = self.schema.samples
        samples = [(of.values_of(i), sample) for of in requests for i, sample in enumerate(of.samples)]
        slots = [[values.get(slot.name, []) for values, _ in samples] for slot in schema.sparse]
        dense = [[v for s in schema.dense for v in sample.dense.get(s.name, [0.0] * s.dim)] for _, sample in samples]
        try:
            return make_batch(schema, slots, dense)
        except (ValueError, OverflowError) as e:
            raise Corruption(f"the log does not match the schema of the version it names: {e}") from None

    def score(self, batch: Batch) -> NDArray[np.float32]:
        rows = lambda table, feasigns: get_rows(self._repository, self._chain, table, feasigns)  # noqa: E731
        return self._graph.scores(make_inputs(self.schema, batch, rows))


def _group(decoded: Decoded | None) -> tuple[str, frozenset[str]]:
    if decoded is None:
        return "logged", frozenset()
    if decoded.lines is not None:
        return f"lines {decoded.format or ''}", frozenset()
    return "columns", frozenset(decoded.final)


def _with_values(schema: Schema, final: frozenset[str]) -> Schema:
    """The schema with explicit value kinds for all slots; slots that are final are read unchanged."""
    ready = {slot.name: slot for slot in schema.joined(schema.format).slots}
    slots = []
    for slot in schema.slots:
        if slot.name in final:
            slots.append(ready[slot.name])
        elif isinstance(slot, SparseSlot):
            slots.append(slot.model_copy(update={"values": "string" if is_hashed(schema, slot.name) else "id"}))
        else:
            slots.append(slot)
    return schema.model_copy(update={"slots": tuple(slots), "weight": None})


def _spread(cells: list[Any] | None, count: int, nothing: Any) -> list[Any]:
    """One cell per sample; a single cell is used for all."""
    if cells is None:
        return [nothing] * count
    return cells * count if len(cells) == 1 else cells


def _same(made: Batch, logged: Batch) -> bool:
    return (
        np.array_equal(made.offsets - made.offsets[0], logged.offsets)
        and np.array_equal(made.values[made.offsets[0] : made.offsets[-1]], logged.values)
        and _is_close(made.dense, logged.dense)
    )


def _first_difference(request: LoggedRequest, made: Batch, logged: Batch) -> Difference | None:
    schema = logged.schema
    for sample in range(len(logged)):
        pairs = []
        for number, slot in enumerate(schema.sparse):
            was, now = (_cell(batch, number, sample) for batch in (logged, made))
            pairs.append((slot.name, was, now, was == now))
        first = 0
        for dense in schema.dense:
            a, b = (batch.dense[sample, first : first + dense.dim] for batch in (logged, made))
            first += dense.dim
            pairs.append((dense.name, a.tolist(), b.tolist(), _is_close(a, b)))
        for name, was, now, is_same in pairs:
            if not is_same:
                return Difference(request.id, request.model, request.version, sample, name, was, now)
    return None


def _cell(batch: Batch, slot: int, sample: int) -> list[Any]:
    values, offsets = batch.slot(slot)
    return list(values[offsets[sample] : offsets[sample + 1]].tolist())


def _is_close(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return bool(np.allclose(a, b, rtol=_DENSE_TOLERANCE, atol=_DENSE_TOLERANCE))
