"""Saved tables: bit-exact, atomic, and any damage refused by name."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.errors import Corruption, FailedPrecondition, InternalError, NotFound
from elasticctr.table import AdagradSettings, AdmissionSettings, SegmentSettings, SlotTarget, Table, TableSettings


def make_table(dim: int = 4, optimizer: Any = None, **changes: Any) -> Table:
    segment = SegmentSettings(dim=dim, optimizer=optimizer or AdagradSettings())
    return Table(TableSettings(segments=(segment,), admission=AdmissionSettings(count=2), **changes))


def fill(table: Table, count: int = 3000, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    layout = table.layout([SlotTarget(0, {"embedding": 0})])
    values = rng.integers(0, count, size=count).astype(np.uint64) * np.uint64(2**50 + 1)
    lookup = layout.lookup(values, np.arange(count + 1, dtype=np.int32), count)
    table.find(lookup, insert=True)
    gradient = rng.normal(size=(count, table.settings.segments[0].dim)).astype(np.float32)
    table.push(lookup, layout, [gradient], now=3)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Table, Path]:
    table = make_table()
    fill(table)
    table.save(tmp_path / "table")
    return table, tmp_path / "table"


def test_a_loaded_table_is_the_saved_one(saved: tuple[Table, Path]) -> None:
    table, path = saved
    other = make_table()
    fill(other, seed=9)  # what was there before is gone
    other.load(path)
    for a, b in zip(table.rows(), other.rows(), strict=True):
        for name in ("feasigns", "weights", "shows", "clicks", "last_seen"):
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes()
    assert other.stats().pending == table.stats().pending > 0
    assert other.stats().steps == table.stats().steps
    other.save(path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()
    for t in (table, other):
        fill(t, seed=1)
    assert next(table.rows()).weights.tobytes() == next(other.rows()).weights.tobytes()


def test_an_empty_table_too(tmp_path: Path) -> None:
    make_table().save(tmp_path / "empty")
    table = make_table()
    fill(table)
    table.load(tmp_path / "empty")
    assert len(table) == 0 and table.stats().pending == 0


def test_the_file_is_as_its_page_says(saved: tuple[Table, Path]) -> None:
    """Reads docs/formats/table.md's layout with struct, independently of the native reader."""
    table, path = saved
    data = path.read_bytes()
    magic, version, layout_bytes, note_bytes, shards, rows, steps, _, pending, row_bytes, _ = struct.unpack_from(
        "<8sIIIIQQQQII", data
    )
    assert (magic, version, shards, steps) == (b"ECTRTBL\0", 1, 256, 1)
    layout = json.loads(data[64 : 64 + layout_bytes])
    assert layout["segments"] == [{"name": "embedding", "dim": 4, "optimizer": "adagrad"}]
    assert json.loads(data[64 + layout_bytes : 64 + layout_bytes + note_bytes])["name"] == "main"
    offset, found, waiting = 64 + layout_bytes + note_bytes, {}, 0
    while offset < len(data) - 24:
        kind, _, count, payload, _, zero = struct.unpack_from("<HHIQII", data, offset)
        assert zero == 0
        if kind == 1:
            for i in range(count):
                at = offset + 24 + i * row_bytes
                key, show, _, last_seen, *weights = struct.unpack_from("<QffI4f", data, at)
                found[key] = (show, last_seen, weights)
        else:
            waiting += count
        offset += 24 + payload
    assert data[-24:-16] == b"ECTREND\0"
    assert len(found) == rows == len(table) and waiting == pending
    exported = next(table.rows())
    for feasign, show, weights in zip(exported.feasigns, exported.shows, exported.weights, strict=True):
        assert found[int(feasign)] == (show, 3, weights.tolist())


def test_damage_is_refused_by_file_and_byte(saved: tuple[Table, Path]) -> None:
    _, path = saved
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [0, 8, 12, 16, 24, 60, 70, *rng.integers(64, len(good), 60).tolist(), len(good) - 1]:
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(Corruption, match=f"{path}.*byte"):
            make_table().load(path)
    for length in [0, 1, 63, 64, 100, len(good) // 2, len(good) - 25, len(good) - 24, len(good) - 1]:
        path.write_bytes(good[:length])
        with pytest.raises(Corruption, match=str(path)):
            make_table().load(path)


def test_a_damaged_block_leaves_an_empty_table_and_a_bad_header_the_old_one(saved: tuple[Table, Path]) -> None:
    _, path = saved
    good = path.read_bytes()
    table = make_table()
    fill(table)
    before = len(table)
    path.write_bytes(b"not a table at all" * 10)
    with pytest.raises(Corruption, match="not a table file"):
        table.load(path)
    assert len(table) == before
    bad = bytearray(good)
    bad[len(good) // 2] ^= 255
    path.write_bytes(bad)
    with pytest.raises(Corruption):
        table.load(path)
    assert len(table) in (0, before)
    path.write_bytes(good)
    table.load(path)
    assert len(table) == before


@pytest.mark.parametrize(
    "other",
    [
        lambda: make_table(dim=5),
        lambda: make_table(optimizer={"name": "adam"}),
        lambda: make_table(counters=False),
    ],
)
def test_a_layout_that_does_not_fit_names_both(saved: tuple[Table, Path], other: Callable[[], Table]) -> None:
    with pytest.raises(FailedPrecondition, match=r'"dim":4,"optimizer":"adagrad".*the table\'s \{"counters"'):
        other().load(saved[1])


def test_learning_rates_may_change_between_save_and_load(saved: tuple[Table, Path]) -> None:
    make_table(optimizer=AdagradSettings(learning_rate=0.5)).load(saved[1])


def test_a_future_format_is_refused(saved: tuple[Table, Path]) -> None:
    _, path = saved
    bad = bytearray(path.read_bytes())
    bad[8] = 2
    path.write_bytes(bad)
    with pytest.raises(Corruption):  # the header's checksum covers the version
        make_table().load(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="absent"):
        make_table().load(tmp_path / "absent")
    with pytest.raises(NotFound, match="nowhere"):
        make_table().save(tmp_path / "nowhere" / "table")
    with pytest.raises(Corruption, match="regular"):
        make_table().load(tmp_path)


def test_a_full_disk_says_so(saved: tuple[Table, Path]) -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("needs /dev/full")
    table, path = saved
    path.with_name("table.tmp").symlink_to("/dev/full")
    with pytest.raises(InternalError, match="disk is full"):
        table.save(path)
    assert not path.with_name("table.tmp").exists()
