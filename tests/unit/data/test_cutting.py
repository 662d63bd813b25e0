"""Chunks cover the data once, whatever its format, and an epoch goes through them in a reproducible order."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticctr.data.chunks import Chunk
from elasticctr.data.cutting import Cut, cut_data, order_chunks
from elasticctr.data.schema import Schema
from elasticctr.data.settings import DataSettings

LINE = b"click:0 user:%06d\n"


def cut(path: Path | str, chunk_bytes: int, format: str = "slot", **settings: Any) -> Cut:
    schema = Schema.model_validate({"format": format, "slots": [{"name": "user"}]})
    return cut_data(DataSettings.model_validate({"path": str(path), **settings}), schema, chunk_bytes)


def test_text_is_cut_into_ranges_that_follow_each_other(tmp_path: Path) -> None:
    data = b"".join(LINE % i for i in range(1000))
    (tmp_path / "log").write_bytes(data)
    for chunk_bytes in (1000, 3333, len(data) - 1):
        chunks = cut(tmp_path / "log", chunk_bytes).chunks
        assert len(chunks) == max(round(len(data) / chunk_bytes), 1) and {chunk.unit for chunk in chunks} == {"bytes"}
        ends = [0, *(chunk.end for chunk in chunks)]
        assert [chunk.start for chunk in chunks] == ends[:-1] and ends[-1] == len(data)


def test_a_small_file_is_one_chunk_and_every_file_is_counted(tmp_path: Path) -> None:
    for part in range(3):
        (tmp_path / f"part-{part}").write_bytes(LINE % part)
    found = cut(tmp_path / "part-*", 1000)
    assert (found.files, [chunk.unit for chunk in found.chunks]) == (3, ["file"] * 3)


@pytest.mark.parametrize("name", ["log.gz", "log"])
def test_a_compressed_file_is_never_cut(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(bytes(range(256)) * 100, 0))
    (chunk,) = cut(tmp_path / name, 100).chunks
    assert chunk.unit == "file"


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    table = pa.table({"click": [0.0] * 1000, "user": pa.array(range(1000), pa.uint64())})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100, compression="none", use_dictionary=False)
    for chunk_bytes, at_least in ((1, 10), (1 << 30, 1)):
        chunks = cut(tmp_path / "log.parquet", chunk_bytes, "parquet").chunks
        assert len(chunks) == at_least and {chunk.unit for chunk in chunks} == {"row_groups"}
        ends = [0, *(chunk.end for chunk in chunks)]
        assert [chunk.start for chunk in chunks] == ends[:-1] and ends[-1] == 10


def make_chunks(*dates: str | None) -> list[Chunk]:
    return [Chunk(f"log-{i}", "file", date=date) for i, date in enumerate(dates)]


def test_an_epoch_is_the_same_for_a_seed_and_another_for_others() -> None:
    chunks = make_chunks(*[None] * 50)

    def order(epoch: int, seed: int) -> list[str]:
        return [chunk.path for chunk in order_chunks(chunks, epoch, seed, is_shuffled=True)]

    assert order(0, 1) == order(0, 1) and sorted(order(0, 1)) == sorted(chunk.path for chunk in chunks)
    assert order(0, 1) != order(1, 1) and order(0, 1) != order(0, 2)


def test_dates_keep_their_order_and_are_mixed_inside() -> None:
    chunks = make_chunks(*["20200401"] * 20, *["20200402"] * 20)
    ordered = order_chunks(chunks, 0, 1, is_shuffled=True)
    assert [chunk.date for chunk in ordered] == [chunk.date for chunk in chunks]
    assert [chunk.path for chunk in ordered] != [chunk.path for chunk in chunks]


def test_every_chunk_has_a_number_and_a_seed_of_its_own() -> None:
    for is_shuffled in (True, False):
        ordered = order_chunks(make_chunks(None, None, None), 2, 1, is_shuffled=is_shuffled)
        assert [(chunk.epoch, chunk.number) for chunk in ordered] == [(2, 0), (2, 1), (2, 2)]
        assert len({chunk.seed for chunk in ordered}) == len({chunk.id for chunk in ordered}) == 3
    assert [chunk.path for chunk in ordered] == ["log-0", "log-1", "log-2"], "not shuffled"
