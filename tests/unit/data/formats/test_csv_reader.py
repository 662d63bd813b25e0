"""CSV columns become slots; bad rows are reported with their line and skipped."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import xxhash

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import DataError

SCHEMA = Schema.model_validate(
    {
        "format": "csv",
        "label": "click",
        "weight": "w",
        "hash_seed": 7,
        "slots": [
            {"kind": "sparse", "name": "city"},
            {"kind": "sparse", "name": "user", "column": "user_id", "values": "id"},
            {"kind": "sparse", "name": "tags", "separator": "|", "max_values": 3},
            {"kind": "sparse", "name": "clicks", "separator": ";", "values": "id", "pooling": "none", "max_values": 2},
            {"kind": "dense", "name": "price", "transform": "log1p", "diff": [10]},
            {"kind": "dense", "name": "vector", "dim": 2, "transform": "scale", "min": [1, 2], "diff": [2, 4]},
        ],
    }
)
HEADER = "click,unused,city,user_id,tags,clicks,price,vector,w\n"


def hashed(slot: str, text: str, seed: int = 7) -> int:
    return xxhash.xxh64_intdigest(text.encode(), xxhash.xxh64_intdigest(slot.encode(), seed))


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, schema: Schema = SCHEMA, **options: object) -> tuple[Batch, Dataset]:
    data = Dataset(str(path), schema, ReadOptions.model_validate(options))
    return Batch.concat(list(data.iterate(1000))), data


def slots(batch: Batch, row: int) -> list[list[int]]:
    n = len(batch)
    starts = [batch.offsets[s * n + row : s * n + row + 2] for s in range(len(batch.schema.sparse))]
    return [batch.values[a:b].tolist() for a, b in starts]


def test_columns_become_slots(tmp_path: Path) -> None:
    big = 2**64 - 1
    text = HEADER + f'1,x,"Graz, AT",{big},a|b||c|d,1;2;3,10,3|10,0.5\n0,y,Köln,,,,,,\n'
    batch, _ = read(write(tmp_path, text))
    assert batch.labels.tolist() == [[1.0], [0.0]]
    assert batch.weights.tolist() == [0.5, 1.0]
    assert slots(batch, 0) == [
        [hashed("city", "Graz, AT")],
        [big],
        [hashed("tags", tag) for tag in "abc"],
        [2, 3],
    ]
    assert slots(batch, 1) == [[hashed("city", "Köln")], [], [], []]
    assert batch.dense[0].tolist() == [np.float32(np.float32(math.log(11)) / 10.0), (3 - 1) / 2, (10 - 2) / 4]
    assert batch.dense[1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2,x,c,1,,,1,,1", "label 'click' is '2'"),
        (",x,c,1,,,1,,1", "no label 'click'"),
        ("yes,x,c,1,,,1,,1", "'click' is 'yes', not a number"),
        ("1,x,c,-5,,,1,,1", "slot 'user': '-5' is not a feasign"),
        ("1,x,c,18446744073709551616,,,1,,1", "slot 'user': '18446744073709551616'"),
        ("1,x,c,1e3,,,1,,1", "slot 'user': '1e3'"),
        ("1,x,c,1,,7;x,1,,1", "slot 'clicks': '7;x'"),
        ("1,x,c,1,,,nan,,1", "dense slot 'price' is 'nan', not a finite number"),
        ("1,x,c,1,,,1_0,,1", "dense slot 'price' is '1_0'"),
        ("1,x,c,1,,,inf,,1", "dense slot 'price' is 'inf'"),
        ("1,x,c,1,,,1,1|2|3,1", "dense slot 'vector' has 3 values, not 2"),
        ("1,x,c,1,,,1,,-1", "weight '-1'"),
        ("1,x,c,1,,,1,1", "8 cells, not 9"),
        ('1,x,"c,1,,,1,,1', "3 cells, not 9"),
    ],
)
def test_a_bad_row_is_reported_with_its_line_and_left_out(tmp_path: Path, row: str, reason: str) -> None:
    good = "1,x,c,{},,,1,1|2,1\n"
    lines = [good.format(i) for i in range(2, 52)]
    lines.insert(20, row + "\n")
    lines.insert(30, "\n")
    path = write(tmp_path, HEADER + "".join(lines))
    batch, data = read(path)
    assert batch.slot(1)[0].tolist() == list(range(2, 52))
    assert data.stats.bad == 1
    assert data.stats.examples[0].startswith(f"{path}:22: ")
    assert reason in data.stats.examples[0]
    assert data.stats.lines == 51
    with pytest.raises(DataError, match=r"log\.csv:22: "):
        read(path, on_bad="fail")


def test_stray_quotes_cost_their_own_lines_only(tmp_path: Path) -> None:
    rng = random.Random(2)
    lines = [f"1,x,c,{i},,,1,,1\n" for i in range(2000)]
    wrong = sorted(rng.sample(range(2000), 15))
    for i in wrong:
        lines[i] = f'1,x,"c,{i},,,1,,1\n'
    batch, data = read(write(tmp_path, HEADER + "".join(lines)), block_bytes=4096)
    assert batch.slot(1)[0].tolist() == [i for i in range(2000) if i not in wrong]
    assert data.stats.bad == 15


def test_bytes_that_are_no_text_are_hashed_as_they_are(tmp_path: Path) -> None:
    text = HEADER.encode() + b"1,x,\xff\xfe,1,,,1,,1\n"
    batch, _ = read(write(tmp_path, text))
    seed = xxhash.xxh64_intdigest(b"city", 7)
    assert slots(batch, 0)[0] == [xxhash.xxh64_intdigest(b"\xff\xfe", seed)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_marks(tmp_path: Path, mark: bytes, end: str) -> None:
    text = (HEADER + "1,x,c,1,,,1,,0.25\n0,x,d,2,,,1,,1").replace("\n", end)
    batch, _ = read(write(tmp_path, mark + text.encode()))
    assert batch.labels[:, 0].tolist() == [1, 0]
    assert batch.weights.tolist() == [0.25, 1]
    assert slots(batch, 0)[0] == [hashed("city", "c")]


def test_without_a_header_columns_are_numbers(tmp_path: Path) -> None:
    schema = Schema.model_validate(
        {
            "format": "csv",
            "label": "0",
            "header": False,
            "delimiter": "\t",
            "slots": [{"kind": "sparse", "name": "u", "column": "2", "values": "id"}],
        }
    )
    batch, _ = read(write(tmp_path, "1\tx\t5\n0\ty\t6\n"), schema)
    assert batch.labels[:, 0].tolist() == [1, 0]
    assert batch.values.tolist() == [5, 6]


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv:1: no column 'user_id'; did you mean 'userid'\?"):
        read(write(tmp_path, HEADER.replace("user_id", "userid") + "1,x,c,1,,,1,,1\n"))
    with pytest.raises(DataError, match="column 'city' is there twice"):
        read(write(tmp_path, HEADER.replace("unused", "city") + "1,x,c,1,,,1,,1\n"))


def test_an_over_long_line(tmp_path: Path) -> None:
    text = HEADER + "1,x,c,1,,,1,,1\n" * 3 + "z" * 5000 + "\n" + "1,x,c,2,,,1,,1\n"
    batch, data = read(write(tmp_path, text), block_bytes=1024, max_line_bytes=2048)
    assert batch.slot(1)[0].tolist() == [1, 1, 1, 2]
    assert "log.csv:5: a line of 5000 bytes" in data.stats.examples[0]


def many(tmp_path: Path, count: int = 1000) -> Path:
    rows = [f"{i % 2},x,c{i % 7},{i},t{i}|u,{i};{i + 1},{i / 4},{i}|{-i},1\n" for i in range(count)]
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "".join(rows)).encode()))
    return path


def test_a_split_goes_by_the_line(tmp_path: Path) -> None:
    path = many(tmp_path)
    lines = gzip.decompress(path.read_bytes()).splitlines()[1:]
    batch, _ = read(path, fraction=(0.25, 0.75), split_seed=3)
    expected = [i for i, line in enumerate(lines) if 0.25 <= xxhash.xxh64_intdigest(line, 3) / 2**64 < 0.75]
    assert batch.slot(1)[0].tolist() == expected
    assert 400 < len(expected) < 600


@pytest.mark.parametrize("shuffle_rows", [0, 200])
def test_resuming(tmp_path: Path, shuffle_rows: int) -> None:
    options = ReadOptions(block_bytes=2048, shuffle_rows=shuffle_rows)
    data = Dataset(str(many(tmp_path)), SCHEMA, options, seed=1)
    whole = [b.slot(1)[0].tolist() for b in data.iterate(33)]
    assert sorted(u for b in whole for u in b) == list(range(1000))
    for stop in (0, 1, 7, 20, 30):
        with data.iterate(33) as batches:
            for _ in range(stop):
                next(batches)
            state = json.loads(json.dumps(batches.state()))
        assert [b.slot(1)[0].tolist() for b in data.iterate(33, start=state)] == whole[stop:]


def test_labels_may_be_missing_when_only_scoring(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + ",x,c,1,,,1,,1\n1,x,c,2,,,1,,1\n")
    data = Dataset(str(path), SCHEMA, require_label=False)
    labels = next(iter(data)).labels[:, 0]
    assert math.isnan(labels[0])
    assert labels[1] == 1
