"""Publishes a learner's state, as a base or as a delta on the last version of the same history.

For a learner in this process; runs.py publishes run directories through it. writer.py decides the order of writing,
dense.py uses torch, versions/lease.py decides who may publish.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.errors import (
    AlreadyExists,
    Corruption,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
)
from elasticctr.obs import console
from elasticctr.obs.plain import plain
from elasticctr.publish import dense
from elasticctr.table import Mark, Table
from elasticctr.train.learner import Learner
from elasticctr.versions.encoding import decode_rows, encode_rows
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import Encoding, Manifest, Segment, check_name
from elasticctr.versions.removal import carry_out, plan_removal
from elasticctr.versions.repository import Repository
from elasticctr.versions.samples import SAMPLES, allow_rounding, format_samples
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA
from elasticctr.versions.sparse import RowChunk
from elasticctr.versions.verification import GRAPH
from elasticctr.versions.writer import PART_BYTES, VersionWriter, next_version

MAX_CHAIN = 24
_LOOK_BACK = 64  # how many versions are searched for a parent
METRICS = "metrics.json"
KindChoice = Literal["auto", "base", "delta"]


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """What is published along with the learner's own state."""

    samples: Schema
    batch: Batch  # for samples.json
    metrics: dict[str, Any]
    run: dict[str, Any]  # where it comes from; free form
    marks: dict[str, Mark]  # of each table, at the state that is published; without them it cannot be a parent


@dataclass(frozen=True, slots=True)
class _ChangedRows:
    """All rows of a table, or those changed since a mark."""

    table: Table
    since: Mark | None
    advance: Callable[[int], None]

    @property
    def estimate(self) -> int:
        count = len(self.table)
        if self.since is None or count * 64 < PART_BYTES:
            return count
        return sum(len(rows) for rows in self.table.rows(since=self.since))

    def read(self, buckets: tuple[int, int]) -> Iterator[RowChunk]:
        for rows in self.table.rows(buckets=buckets, since=self.since):
            yield rows.feasigns, rows.weights
            self.advance(len(rows))


class Publisher:
    """Publishes one model into one repository.

    With `reuse_graph` the dense graph is exported once and only its parameters are replaced afterwards: for a process
    that publishes repeatedly. `advance` is called with the rows written.
    """

    def __init__(
        self,
        repository: Repository | str,
        model: str,
        *,
        encoding: Encoding = "fp32",
        max_chain: int = MAX_CHAIN,
        keep: int | None = None,
        reuse_graph: bool = False,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.repository = Repository(repository) if isinstance(repository, str) else repository
        self.model = check_name(model, "model")
        self._encoding: Encoding = encoding
        self._max_chain = max_chain
        self._keep = keep
        self._reuse_graph = reuse_graph
        self._template: dense.GraphTemplate | None = None
        self._advance = advance
        self._told: set[str] = set()

    def publish(self, learner: Learner, snapshot: PublishedRun, kind: KindChoice = "auto") -> Manifest:
        """Writes the next version and announces it. REQUIRES: the learner does not learn meanwhile."""
        for table in learner.sparse.tables:
            check_name(table.settings.name, "table")
        run = {
            **snapshot.run,
            "identity": learner.identity,
            "marks": {name: str(mark) for name, mark in snapshot.marks.items()},
        }
        schema = dense.make_serving_schema(learner, snapshot.samples)
        trainer_scores = dense.score_batch(learner, snapshot.batch)
        inputs = make_inputs(schema, snapshot.batch, lambda table, f: self.decoded_rows(learner, table, f))
        scores = trainer_scores if self._encoding == "fp32" else dense.score_inputs(learner, inputs)
        tolerance = allow_rounding(dense.measure_rounding(learner, inputs))
        graph = self._make_graph(learner, inputs, scores, tolerance)
        with PublisherLease(self.repository.store, self.model) as lease:
            version = next_version(self.repository, self.model)
            self._remove(lease, None)
            parent = self._find_parent(learner, run, kind)
            writer = VersionWriter(self.repository, self.model, version, lease)
            writer.add_file(SCHEMA, _json(schema.model_dump(mode="json")))
            writer.add_file(GRAPH, graph)
            self._add_tables(writer, learner, parent)
            writer.add_file(METRICS, _json(plain(snapshot.metrics)))
            writer.add_file(SAMPLES, format_samples(snapshot.batch, scores, trainer_scores, tolerance))
            manifest = writer.commit("base" if parent is None else "delta", parent, run)
            writer.announce(manifest)
            if self._keep is not None:
                self._remove(lease, self._keep)
        return manifest

    def _remove(self, lease: PublisherLease, keep: int | None) -> None:
        """Removes what may be removed. Publishing continues if that cannot be determined."""
        try:
            carry_out(self.repository, plan_removal(self.repository, self.model, keep), lease)
        except ElasticCTRError as e:
            if str(e) not in self._told:
                self._told.add(str(e))
                console.warn(str(e))

    def decoded_rows(
        self, learner: Learner, table: str, feasigns: NDArray[np.uint64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Rows as a reader of the version will decode them, and which of them exist."""
        rows = next(t for t in learner.sparse.tables if t.settings.name == table).get(feasigns)
        return decode_rows(encode_rows(rows.weights, self._encoding), self._encoding), rows.found

    def _make_graph(
        self, learner: Learner, inputs: dict[str, NDArray[Any]], scores: NDArray[np.float32], tolerance: float
    ) -> bytes:
        """Exports the dense graph and refuses one whose scores differ from the trainer's."""
        if self._reuse_graph:
            if self._template is None:
                self._template = dense.GraphTemplate(learner)
            graph = self._template.fill(learner)
            if graph is not None and _distance(graph, inputs, scores) <= tolerance:
                return graph
        graph = dense.make_onnx(learner)
        worst = _distance(graph, inputs, scores)
        if not worst <= tolerance:
            raise InternalError(
                f"model {self.model!r}: the exported graph differs from the trainer's scores by {worst:.3g}, "
                f"more than the allowed {tolerance:.3g}; nothing was published"
            )
        return graph

    def _find_parent(self, learner: Learner, run: dict[str, Any], kind: KindChoice) -> Manifest | None:
        """The last version published from this history, or None if a base is to be made."""
        if kind == "base":
            return None
        where = f"{self.repository.url}/{self.model}"
        moving = [t.settings.name for t in learner.sparse.tables if t.settings.moves_untouched_rows]
        if moving and kind == "delta":
            raise FailedPrecondition(
                f"{where}: a delta holds only rows that training touched, but with catch_up the other rows of table "
                f"{', '.join(moving)} changed too; publish a base"
            )
        for manifest in itertools.islice(self.repository.newest(self.model), _LOOK_BACK):
            if not self._stands_on(learner, run, manifest):
                continue
            if manifest.run["marks"] == run["marks"]:
                raise AlreadyExists(
                    f"{where}: this state is already version {manifest.version}; train further, or publish it as a base"
                )
            if moving:
                return None
            if len(manifest.chain) + 1 <= self._max_chain and self._is_whole(manifest):
                return manifest
            if kind == "delta":
                raise FailedPrecondition(
                    f"{where}: version {manifest.version} depends on {len(manifest.chain)} others, and --max-chain is "
                    f"{self._max_chain}; publish a base"
                )
            return None
        if kind == "delta":
            raise FailedPrecondition(
                f"{where}: no parent for a delta: no recent version was published from this history of the run with "
                "this encoding; publish a base"
            )
        return None

    def _stands_on(self, learner: Learner, run: dict[str, Any], parent: Manifest) -> bool:
        marks = parent.run.get("marks")
        names = {table.settings.name for table in learner.sparse.tables}
        if not isinstance(marks, dict) or set(marks) != names or set(parent.tables) != names:
            return False
        if set(run["marks"]) != names or parent.run.get("identity") != run["identity"]:
            return False
        for table in learner.sparse.tables:
            name = table.settings.name
            try:
                is_known = table.knows(Mark.parse(str(marks[name])))
            except Corruption:
                return False
            if not is_known or parent.tables[name].encoding != self._encoding:
                return False
        return True

    def _is_whole(self, parent: Manifest) -> bool:
        try:
            return len(self.repository.chain(self.model, parent.version)) > len(parent.chain)
        except (NotFound, Corruption):
            return False

    def _add_tables(self, writer: VersionWriter, learner: Learner, parent: Manifest | None) -> None:
        for table in learner.sparse.tables:
            name = table.settings.name
            since = None if parent is None else Mark.parse(parent.run["marks"][name])
            segments = tuple(Segment(name=s.name, dim=s.dim) for s in table.settings.segments)
            gone = np.zeros(0, dtype=np.uint64) if since is None else table.gone(since)
            writer.add_table(name, segments, self._encoding, _ChangedRows(table, since, self._advance), gone)


def _distance(graph: bytes, inputs: dict[str, NDArray[Any]], scores: NDArray[np.float32]) -> float:
    return float(np.abs(DenseGraph(graph, GRAPH).scores(inputs) - scores).max(initial=0.0))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
