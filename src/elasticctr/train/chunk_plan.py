"""The chunks of a run's epochs on disk: cut once, when the run begins, and put in order for each epoch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticctr.data.chunks import Chunk
from elasticctr.data.cutting import Cut, cut_data, order_chunks
from elasticctr.data.pipeline import Stats
from elasticctr.errors import ConfigError, Corruption, DataError, NotFound
from elasticctr.storage.atomic import read_json, write_json
from elasticctr.train.cluster_settings import ClusterSettings
from elasticctr.train.job import Job

_CUT = "cut.json"
# Evaluations are passes of their own, numbered from here so that no training chunk has the id of one of theirs.
FIRST_EVALUATION = 1 << 24


class Plan:
    """Of one run; `directory` is its ledger's."""

    def __init__(self, directory: Path, job: Job) -> None:
        self._directory = directory
        self._job = job
        self._cuts: dict[str, Cut] = {}

    def prepare(self) -> Cut:
        """Cuts the training data, unless that was done when the run began."""
        if "train" not in self._cuts:
            path = self._directory / _CUT
            try:
                self._cuts["train"] = _load_cut(read_json(path), path)
            except NotFound:
                cut = self._cut("train")
                if not cut.chunks:
                    raise DataError("holds no samples; check data.train", str(self._job.data.train.path)) from None
                write_json(path, _dump_cut(cut))
                self._cuts["train"] = cut
        return self._cuts["train"]

    def epoch(self, epoch: int) -> list[Chunk]:
        """The chunks of an epoch in order. Writes its plan on the first call."""
        path = self._directory / f"plan-{epoch}.json"
        try:
            return _load_chunks(read_json(path), path)
        except NotFound:
            pass
        chunks = self._order(self.prepare(), epoch, "train")
        write_json(path, {"epoch": epoch, "chunks": [chunk.as_dict() for chunk in chunks]})
        return chunks

    def evaluation(self, split: str, number: int) -> tuple[list[Chunk], Cut]:
        """The chunks of the data of a split, for the run's evaluation number `number`."""
        if split not in self._cuts:
            self._cuts[split] = self._cut(split)
        cut = self._cuts[split]
        return self._order(cut, FIRST_EVALUATION + number, split), cut

    def _cut(self, split: str) -> Cut:
        settings = getattr(self._job.data, split)
        if settings is None:
            raise ConfigError(f"the job has no data.{split}")
        cluster = self._job.cluster
        chunk_mib = (ClusterSettings() if cluster is None else cluster).chunk_mib
        return cut_data(settings, self._job.samples, max(int(chunk_mib * 2**20), 1))

    def _order(self, cut: Cut, epoch: int, split: str) -> list[Chunk]:
        is_shuffled = bool(getattr(self._job.data, split).shuffle_rows)
        return order_chunks(cut.chunks, epoch, self._job.train.seed, is_shuffled=is_shuffled)


def digest_of(chunks: Sequence[Chunk]) -> str:
    """The same for the same chunks in the same order."""
    text = json.dumps([chunk.as_dict() for chunk in chunks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _dump_cut(cut: Cut) -> dict[str, Any]:
    known = {"lines": cut.known.lines, "bad": cut.known.bad, "examples": list(cut.known.examples)}
    return {"files": cut.files, "known": known, "chunks": [chunk.as_dict() for chunk in cut.chunks]}


def _load_cut(value: dict[str, Any], path: Path) -> Cut:
    chunks = tuple(_load_chunks(value, path))
    try:
        known = value["known"]
        stats = Stats(int(known["lines"]), 0, int(known["bad"]), tuple(str(e) for e in known["examples"]))
        return Cut(chunks, int(value["files"]), stats)
    except (KeyError, TypeError, ValueError) as e:
        raise Corruption(f"{path}: unreadable ({type(e).__name__}: {e}); remove the ledger directory") from None


def _load_chunks(value: dict[str, Any], path: Path) -> list[Chunk]:
    try:
        return [Chunk.from_dict(one) for one in value["chunks"]]
    except (KeyError, TypeError, DataError) as e:
        raise Corruption(f"{path}: unreadable ({type(e).__name__}: {e}); remove the ledger directory") from None
