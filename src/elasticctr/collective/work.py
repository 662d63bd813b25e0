"""Who reads what in a collective run, and how far everyone is.

The chunks of an epoch that are not done are dealt to the ranks in turn, date after date. Every rank computes the same
deal from the same ledger, so nobody has to be asked. After a restart with another number of ranks the rest is dealt
anew, and a chunk that was begun continues after the last batch that the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from elasticctr.data.ahead import Ahead
from elasticctr.data.batch import Batch
from elasticctr.data.chunks import Chunk, read_chunk
from elasticctr.data.pipeline import Stats
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import Corruption, DataError, FailedPrecondition
from elasticctr.table import Lookup
from elasticctr.train.chunk_plan import digest_of
from elasticctr.train.reading import DEPTH, GROUP_SAMPLES, PreparedBatch

_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """A batch of a chunk with its lookups; None if the chunk has no batch left."""

    chunk: Chunk
    number: int  # of the batch within the chunk
    item: PreparedBatch | None
    is_last: bool
    stats: Stats  # of the chunk; complete with its last batch

    @property
    def samples(self) -> int:
        return 0 if self.item is None else len(self.item.batch)


@dataclass(slots=True)
class ChunkNote:
    """How far a chunk is."""

    batches: int = 0
    samples: int = 0
    is_done: bool = False
    lines: int = 0
    bad: int = 0


@dataclass(slots=True)
class EpochLedger:
    """What is done of one epoch: of all ranks when it comes from a checkpoint, of one rank while it runs."""

    epoch: int = 0
    notes: dict[int, ChunkNote] = field(default_factory=dict)  # by number of the chunk
    examples: tuple[str, ...] = ()  # of bad lines

    def take(self, batch: ChunkBatch) -> None:
        note = self.notes.setdefault(batch.chunk.number, ChunkNote(batches=batch.number))
        if batch.item is not None:
            note.batches = batch.number + 1
            note.samples += batch.samples
        if batch.is_last:
            note.is_done, note.lines, note.bad = True, batch.stats.lines, batch.stats.bad
            self.examples = (self.examples + batch.stats.examples)[:_EXAMPLES]

    def join(self, others: Sequence[EpochLedger]) -> EpochLedger:
        """The notes of all ranks. A chunk belongs to one rank at a time, so the note that is further is right."""
        notes = dict(self.notes)
        examples = self.examples
        for other in others:
            examples += tuple(text for text in other.examples if text not in examples)
            for number, note in other.notes.items():
                if number not in notes or (note.is_done, note.batches) > (notes[number].is_done, notes[number].batches):
                    notes[number] = note
        return EpochLedger(self.epoch, notes, examples[:_EXAMPLES])

    @property
    def stats(self) -> Stats:
        notes = self.notes.values()
        return Stats(
            lines=sum(note.lines for note in notes),
            samples=sum(note.samples for note in notes),
            bad=sum(note.bad for note in notes),
            examples=self.examples,
        )

    def as_dict(self) -> dict[str, Any]:
        notes = [[number, n.batches, n.samples, n.is_done, n.lines, n.bad] for number, n in self.notes.items()]
        return {"epoch": self.epoch, "notes": notes, "examples": list(self.examples)}

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> EpochLedger:
        """As another rank said it. Raises DataError."""
        try:
            notes = {
                int(number): ChunkNote(int(batches), int(samples), bool(is_done), int(lines), int(bad))
                for number, batches, samples, is_done, lines, bad in value["notes"]
            }
            return EpochLedger(int(value["epoch"]), notes, tuple(str(text) for text in value["examples"]))
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"another rank's ledger cannot be read: {type(e).__name__}: {e}") from None

    def state(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """For ledger.json, as the coordinator writes it (docs/formats/checkpoint.md)."""
        notes = sorted(self.notes.items())
        done = [[number, n.batches, n.samples, n.lines, n.bad] for number, n in notes if n.is_done]
        begun = [[number, n.batches, n.samples] for number, n in notes if not n.is_done and n.batches]
        return {
            "format": 1,
            "plan": digest_of(chunks),
            "epoch": self.epoch,
            "chunks": len(chunks),
            "done": done,
            "begun": begun,
            "examples": list(self.examples),
        }

    @staticmethod
    def restore(state: Mapping[str, Any], chunks: Sequence[Chunk]) -> EpochLedger:
        """Raises Corruption, and FailedPrecondition if the data was cut into other chunks then."""
        try:
            if state["plan"] != digest_of(chunks):
                raise FailedPrecondition(
                    "the checkpoint is in the middle of an epoch of other data or other chunks; restore the files and "
                    "cluster.chunk_mib it was made with, or start a new run"
                )
            notes = {int(number): ChunkNote(int(batches), int(samples)) for number, batches, samples in state["begun"]}
            for number, batches, samples, lines, bad in state["done"]:
                notes[int(number)] = ChunkNote(int(batches), int(samples), True, int(lines), int(bad))
            return EpochLedger(int(state["epoch"]), notes, tuple(str(text) for text in state.get("examples", ())))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise Corruption(f"the ledger of a checkpoint cannot be read ({type(e).__name__}: {e})") from None


def deal(chunks: Sequence[Chunk], ledger: EpochLedger, rank: int, ranks: int) -> list[list[tuple[Chunk, int]]]:
    """By date: the chunks rank `rank` reads, each with the batch to begin at."""
    rounds = []
    for _, same in groupby(chunks, key=lambda chunk: chunk.date):
        left = [chunk for chunk in same if not (note := ledger.notes.get(chunk.number)) or not note.is_done]
        mine = left[rank::ranks]
        if left:
            rounds.append([(c, note.batches if (note := ledger.notes.get(c.number)) else 0) for c in mine])
    return rounds


def read_chunks(
    work: Sequence[tuple[Chunk, int]],
    schema: Schema,
    options: ReadOptions,
    batch_size: int,
    look_up: Callable[[Batch], tuple[Lookup, ...]],
) -> Ahead[ChunkBatch]:
    """The batches of some chunks, made ahead on a thread."""

    def make() -> Generator[ChunkBatch, None, None]:
        for chunk, first in work:
            yield from _batches_of(chunk, first, schema, options, batch_size, look_up)

    return Ahead(make(), DEPTH, weigh=lambda batch: batch.samples, group=GROUP_SAMPLES, name="elasticctr-read-ahead")


def _batches_of(
    chunk: Chunk,
    first: int,
    schema: Schema,
    options: ReadOptions,
    batch_size: int,
    look_up: Callable[[Batch], tuple[Lookup, ...]],
) -> Iterator[ChunkBatch]:
    """Each batch waits for the next one, to know whether it is the last."""
    with read_chunk(chunk, schema, options, batch_size, first_batch=first) as batches:
        waiting: PreparedBatch | None = None
        number = first - 1
        for batch in batches:
            if waiting is not None:
                yield ChunkBatch(chunk, number, waiting, False, batches.stats)
            waiting, number = PreparedBatch(batch, look_up(batch), {}), number + 1
        yield ChunkBatch(chunk, max(number, first), waiting, True, batches.stats)
