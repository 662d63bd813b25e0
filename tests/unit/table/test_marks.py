"""Marks: the rows changed and dropped since a mark, applied to its full export, give the current full export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.table import (
    AdagradSettings,
    AdamSettings,
    AdmissionSettings,
    FtrlSettings,
    Mark,
    SegmentSettings,
    SlotTarget,
    Table,
    TableSettings,
)

Export = dict[int, bytes]
SLOTS, SAMPLES, DIM = 3, 40, 3


def make_table(admission: AdmissionSettings | None = None) -> Table:
    return Table(
        TableSettings(
            segments=(
                SegmentSettings(name="linear", dim=1, optimizer=FtrlSettings(l1=0.01)),
                SegmentSettings(name="embedding", dim=DIM, optimizer=AdamSettings(l2=0.1, weight_bound=0.02)),
            ),
            admission=admission or AdmissionSettings(),
        )
    )


def export(table: Table, since: Mark | None = None) -> Export:
    found: Export = {}
    for rows in table.rows(limit=37, since=since):
        for feasign, weights in zip(rows.feasigns.tolist(), rows.weights, strict=True):
            assert feasign not in found
            found[feasign] = weights.tobytes()
    return found


def apply(parent: Export, table: Table, since: Mark) -> Export:
    gone = table.gone(since).tolist()
    changed = export(table, since)
    assert not set(gone) & set(changed)
    return {k: v for k, v in parent.items() if k not in set(gone)} | changed


class Life:
    """A table with random things happening to it."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.random = np.random.default_rng(seed)
        self.layout = make_layout(table)
        self.day = 0

    def push(self, zero: bool = False) -> None:
        lengths = self.random.integers(0, 4, SLOTS * SAMPLES)
        values = self.random.zipf(1.3, lengths.sum()).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        lookup = self.layout.lookup(values, offsets, SAMPLES)
        self.table.find(lookup, insert=True)
        flat = np.zeros((SAMPLES, SLOTS * (1 + DIM)), dtype=np.float32)
        if not zero:
            flat += self.random.normal(size=flat.shape).astype(np.float32)
        self.table.push(lookup, self.layout, [flat], clicks=np.ones(SAMPLES, np.float32), now=self.day)

    def happen(self) -> None:
        self.day += 1
        match self.random.integers(0, 8):
            case 0:
                self.table.decay(0.5)
            case 1:
                self.table.evict(min_score=float(self.random.integers(1, 4)))
            case 2:
                known = list(export(self.table))
                self.table.erase(np.array([k for k in known if self.random.random() < 0.1], dtype=np.uint64))
            case 3:
                self.push(zero=True)
            case 4:
                # Found for evaluation: nothing changes.
                values = self.random.integers(0, 100, 10).astype(np.uint64)
                lookup = self.layout.lookup(values, np.arange(0, SLOTS * 10 + 1, dtype=np.int32).clip(0, 10), 10)
                self.table.find(lookup)
            case _:
                self.push()


def make_layout(table: Table) -> _native.Layout:
    return table.layout(
        [SlotTarget(s, {"linear": s, "embedding": SLOTS + s * DIM}, "mean" if s == 1 else "sum") for s in range(SLOTS)]
    )


@pytest.mark.parametrize(
    "admission", [AdmissionSettings(), AdmissionSettings(count=3), AdmissionSettings(probability=0.4)]
)
@pytest.mark.parametrize("seed", range(4))
def test_parent_and_delta_make_the_whole(tmp_path: Path, seed: int, admission: AdmissionSettings) -> None:
    table = make_table(admission)
    life = Life(table, seed)
    history: list[tuple[Mark, Export]] = []
    for _ in range(12):
        for _ in range(int(life.random.integers(0, 6))):
            life.happen()
        whole = export(table)
        for mark, parent in history:
            assert apply(parent, table, mark) == whole
        if life.random.random() < 0.3:
            # A checkpoint, and another process that continues from it.
            table.save(tmp_path / "t")
            loaded = make_table(admission)
            loaded.load(tmp_path / "t")
            loaded.save(tmp_path / "again")
            assert (tmp_path / "again").read_bytes() == (tmp_path / "t").read_bytes()
            table = life.table = loaded
            life.layout = make_layout(table)
        if life.random.random() < 0.7:
            history.append((table.mark(), export(table)))
    assert len(history) > 3


def test_only_what_changed_is_in_a_delta() -> None:
    table = make_table()
    life = Life(table, 1)
    for _ in range(20):
        life.push()
    mark = table.mark()
    assert export(table, mark) == {} and not len(table.gone(mark))
    table.decay(0.1)
    assert export(table, mark) == {}
    one = np.array([5], dtype=np.uint64)
    lookup = life.layout.lookup(one, np.array([0, 1, 1, 1], dtype=np.int32), 1)
    table.find(lookup, insert=True)
    assert set(export(table, mark)) == {5}
    assert table.erase(one) == 1
    assert export(table, mark) == {} and table.gone(mark).tolist() == [5]
    table.find(lookup, insert=True)
    assert set(export(table, mark)) == {5} and not len(table.gone(mark))


def test_marks_are_remembered_for_255_epochs() -> None:
    table = make_table()
    life = Life(table, 2)
    marks, exports = [], []
    for _ in range(300):
        if life.random.random() < 0.1:
            life.happen()
        exports.append(export(table))
        marks.append(table.mark())
    assert [table.knows(mark) for mark in marks] == [False] * 45 + [True] * 255
    for mark, parent in zip(marks[45::30], exports[45::30], strict=True):
        assert apply(parent, table, mark) == export(table)
    with pytest.raises(FailedPrecondition, match="mark 44 is not known"):
        export(table, marks[44])


def test_a_mark_of_another_history_is_refused(tmp_path: Path) -> None:
    table = make_table()
    life = Life(table, 3)
    life.push()
    table.mark()
    table.save(tmp_path / "t")
    other = make_table()
    other.load(tmp_path / "t")
    life.push()
    here = table.mark()
    Life(other, 4).push()
    there = other.mark()
    assert here.epoch == there.epoch == 1
    assert table.knows(here) and not table.knows(there) and not other.knows(here)
    with pytest.raises(FailedPrecondition, match="another history"):
        other.gone(here)


def test_forgetting_frees_what_is_gone() -> None:
    table = make_table()
    life = Life(table, 5)
    life.push()
    first = table.mark()
    table.evict(min_score=1e9)
    assert len(table.gone(first)) and table.stats().mark_bytes
    second = table.mark()
    table.forget(first)
    assert not table.knows(first) and table.knows(second) and not len(table.gone(second))


def test_a_table_never_marked_keeps_the_old_file_and_an_old_file_loads(tmp_path: Path) -> None:
    table = make_table()
    life = Life(table, 6)
    life.push()
    table.save(tmp_path / "old")
    assert (tmp_path / "old").read_bytes()[8] == 1
    assert table.stats().mark_bytes == 0
    mark = table.mark()
    table.save(tmp_path / "new")
    assert (tmp_path / "new").read_bytes()[8] == 2
    table.load(tmp_path / "old")
    assert not table.knows(mark)
    assert export(table)


def test_marks_as_text() -> None:
    mark = Mark(7, 0xF00)
    assert str(mark) == "7-0000000000000f00" and Mark.parse(str(mark)) == mark
    for text in ("", "7", "x-1", "1-x", "-1-2", "1-" + "f" * 17):
        with pytest.raises(Corruption):
            Mark.parse(text)


def test_layouts_of_one_segment_too(tmp_path: Path) -> None:
    table = Table(TableSettings(segments=(SegmentSettings(dim=2, optimizer=AdagradSettings()),), counters=False))
    layout = table.layout([SlotTarget(0, {"embedding": 0})])
    values = np.arange(1000, dtype=np.uint64)
    offsets = np.arange(1001, dtype=np.int32)
    lookup = layout.lookup(values, offsets, 1000)
    table.find(lookup, insert=True)
    mark = table.mark()
    few = layout.lookup(values[:10], offsets[:11], 10)
    table.find(few)
    table.push(few, layout, [np.ones((10, 2), dtype=np.float32)])
    assert set(export(table, mark)) == set(range(10))
