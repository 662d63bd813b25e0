"""The chunks of an epoch are the data set, whatever the format and wherever it is cut."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from elasticctr.data.batch import Batch
from elasticctr.data.chunks import Chunk, read_chunk
from elasticctr.data.cutting import Cut, cut_data, order_chunks
from elasticctr.data.dataset import Dataset
from elasticctr.data.schema import Schema
from elasticctr.data.settings import DataSettings
from elasticctr.errors import DataError, FailedPrecondition

SLOTS = [{"kind": "sparse", "name": "user"}, {"kind": "sparse", "name": "tags", "separator": "|"}]
TEXT = Schema.model_validate({"slots": [{k: v for k, v in slot.items() if k != "separator"} for slot in SLOTS]})
CSV = Schema.model_validate({"format": "csv", "label": "click", "slots": SLOTS})
PARQUET = Schema.model_validate(
    {"format": "parquet", "slots": [{"kind": "sparse", "name": "user"}, {"kind": "sparse", "name": "tags"}]}
)
SMALL = {"block_bytes": 1024, "max_line_bytes": 4096, "prefetch": 0, "max_bad_fraction": 1.0}
SIZES = [100, 1000, 4096, 1 << 20]


def settings(path: object, **options: object) -> DataSettings:
    return DataSettings.model_validate({"path": str(path), **SMALL, **options})


def text_lines(count: int, seed: int) -> list[bytes]:
    random_ = random.Random(seed)
    lines = []
    for i in range(count):
        tags = "".join(f" tags:{random_.randrange(1000)}" for _ in range(random_.choice([0, 1, 2, 30])))
        lines.append(f"click:{i % 3 == 0:d} user:{i + 1}{tags}".encode())
    for _ in range(count // 20):
        lines.insert(random_.randrange(len(lines)), random_.choice([b"", b"rubbish", b"x" * 9000, b"click:1 user:zz"]))
    return lines


def samples(batches: list[Batch]) -> list[tuple[object, ...]]:
    whole = Batch.concat(batches)
    users, at = whole.slot(0)
    tags, ends = whole.slot(1)
    return [
        (float(whole.labels[i, 0]), tuple(users[at[i] : at[i + 1]]), tuple(tags[ends[i] : ends[i + 1]]))
        for i in range(len(whole))
    ]


def read_all(data: DataSettings, schema: Schema, chunks: list[Chunk], size: int = 37) -> tuple[list[Batch], list[int]]:
    batches, counts = [], [0, 0, 0]
    for chunk in chunks:
        with read_chunk(Chunk.from_dict(json.loads(json.dumps(chunk.as_dict()))), schema, data, size) as read:
            own = list(read)
            assert all(len(b) == size for b in own[:-1])
            assert read.stats.samples == sum(len(b) for b in own)
            batches += own
            for i, value in enumerate((read.stats.lines, read.stats.samples, read.stats.bad)):
                counts[i] += value
    return batches, counts


def check_union(data: DataSettings, schema: Schema, chunk_bytes: int) -> Cut:
    """In order, nothing missing, nothing twice, and the same counts."""
    whole = Dataset(data.path, schema, data)
    expected = samples(list(whole.iterate(100)))
    cut = cut_data(data, schema, chunk_bytes)
    batches, counts = read_all(data, schema, order_chunks(cut.chunks, 0, 5, is_shuffled=False))
    assert samples(batches) == expected
    known = cut.known
    assert [counts[0] + known.lines, counts[1], counts[2] + known.bad] == [
        whole.stats.lines,
        whole.stats.samples,
        whole.stats.bad,
    ]
    assert cut.files == max(len(whole.sources), 1)
    return cut


@pytest.mark.parametrize("chunk_bytes", SIZES)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_plain_text(tmp_path: Path, chunk_bytes: int, end: bytes) -> None:
    lines = text_lines(400, chunk_bytes)
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + end.join(lines[:150]))  # no line end at its end
    (tmp_path / "b.txt").write_bytes(end.join(lines[150:]) + end * 2)
    cut = check_union(settings(tmp_path), TEXT, chunk_bytes)
    size = sum(p.stat().st_size for p in tmp_path.iterdir())
    assert len(cut.chunks) == 2 if chunk_bytes > size else len(cut.chunks) >= size // chunk_bytes - 1
    check_union(settings(tmp_path, fraction=[0.2, 0.7]), TEXT, chunk_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_plain_text_cut_at_every_byte_near_a_line_end(tmp_path: Path, seed: int) -> None:
    lines = text_lines(30, seed)
    data = b"\n".join(lines)
    (tmp_path / "a.txt").write_bytes(data)
    given = settings(tmp_path / "a.txt")
    expected = samples(list(Dataset(given.path, TEXT, given)))
    near = sorted({min(i + d, len(data)) for i, b in enumerate(data) if b == 10 for d in (0, 1, 2)})
    for at in near:
        parts = [Chunk(str(given.path), "bytes", 0, at), Chunk(str(given.path), "bytes", at, len(data))]
        assert samples(read_all(given, TEXT, parts)[0]) == expected


@pytest.mark.parametrize("chunk_bytes", SIZES)
def test_compressed_files_are_whole_chunks(tmp_path: Path, chunk_bytes: int) -> None:
    text = b"\n".join(text_lines(300, 1))
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    (tmp_path / "b.txt").write_bytes(zstandard.ZstdCompressor().compress(text))  # told by its bytes, not its name
    assert [c.unit for c in check_union(settings(tmp_path), TEXT, chunk_bytes).chunks] == ["file", "file"]


@pytest.mark.parametrize("chunk_bytes", SIZES)
def test_csv(tmp_path: Path, chunk_bytes: int) -> None:
    rows = [f'{i % 2},{i},"a{i}|b{i % 7}"' for i in range(300)]
    rows[17], rows[250] = "nonsense", '1,2,"never ends'
    (tmp_path / "a.csv").write_text("\n".join(["click,user,tags", *rows]))
    (tmp_path / "b.csv").write_text("\ufefftags,user,click\nx|y,5,1\n")
    check_union(settings(tmp_path), CSV, chunk_bytes)


@pytest.mark.parametrize("chunk_bytes", SIZES)
def test_parquet_by_row_groups(tmp_path: Path, chunk_bytes: int) -> None:
    table = pa.table(
        {
            "click": pa.array([i % 2 for i in range(500)]),
            "user": pa.array(range(500), pa.uint64()),
            "tags": pa.array([[f"t{k}" for k in range(i % 3)] for i in range(500)]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=60)
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    pq.write_table(table.slice(0, 10), tmp_path / "c.parquet")
    cut = check_union(settings(tmp_path), PARQUET, chunk_bytes)
    assert [c.unit for c in cut.chunks] == ["row_groups"] * len(cut.chunks)
    assert len(cut.chunks) == (3 if chunk_bytes == 1 << 20 else 11 if chunk_bytes == 100 else len(cut.chunks))


def test_bad_rows_of_parquet_keep_their_number(tmp_path: Path) -> None:
    clicks = [None if i == 70 else i % 2 for i in range(100)]
    table = pa.table({"click": pa.array(clicks), "user": pa.array(range(100), pa.uint64()), "tags": [["a"]] * 100})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40)
    data = settings(tmp_path)
    (chunk,) = [c for c in cut_data(data, PARQUET, 1).chunks if c.start == 1]
    read = read_chunk(chunk, PARQUET, data, 64)
    assert sum(len(b) for b in read) == 39
    assert read.stats.examples[0].startswith(f"{tmp_path}/a.parquet:71: ")


@pytest.mark.parametrize("chunk_bytes", SIZES)
def test_a_cached_sample_set(tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.data.cache.build.PART_ROWS", 64)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_bytes(b"\n".join(text_lines(400, 3)))
    cut = check_union(settings(tmp_path / "logs", cache=str(tmp_path / "cache")), TEXT, chunk_bytes)
    assert {c.unit for c in cut.chunks} == {"cache_chunks"}
    check_union(settings(cut.chunks[0].path), TEXT, chunk_bytes)


def test_dates_keep_their_order_and_chunks_are_mixed_inside_them(tmp_path: Path) -> None:
    for day in ("20200401", "20200402"):
        for hour in ("22", "23") if day == "20200401" else ("00",):
            (tmp_path / day / hour).mkdir(parents=True)
            for name in "abcdefgh":
                (tmp_path / day / hour / name).write_bytes(b"\n".join(text_lines(9, 1)))
    data = settings(f"{tmp_path}/{{date}}/{{hour}}", start="20200401/22", end="20200402/00", shuffle_rows=50)
    cut = cut_data(data, TEXT, 1 << 20)
    days = ["20200401/22"] * 8 + ["20200401/23"] * 8 + ["20200402/00"] * 8
    first, again, later = (order_chunks(cut.chunks, epoch, 5, is_shuffled=True) for epoch in (0, 0, 1))
    assert [c.date for c in first] == [c.date for c in later] == days
    assert first == again
    assert sorted(c.path for c in first) == sorted(c.path for c in later) == sorted(c.path for c in cut.chunks)
    assert [c.path for c in first] != [c.path for c in cut.chunks] != [c.path for c in later] != [c.path for c in first]
    assert [c.id for c in later] == [(1 << 32) + n for n in range(24)]
    assert len({c.seed for c in [*first, *later]}) == 48


def test_rows_are_mixed_inside_a_chunk_by_its_seed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n".join(text_lines(400, 3)))
    plain, mixed = settings(tmp_path), settings(tmp_path, shuffle_rows=100)
    chunk = order_chunks(cut_data(plain, TEXT, 1 << 20).chunks, 0, 5, is_shuffled=True)[0]
    other = order_chunks([chunk], 1, 5, is_shuffled=True)[0]
    standing, once, twice, later = (
        samples(list(read_chunk(c, TEXT, d, 50)))
        for c, d in ((chunk, plain), (chunk, mixed), (chunk, mixed), (other, mixed))
    )
    assert sorted(once) == sorted(standing) == sorted(later)
    assert once == twice
    assert once not in (standing, later)


@pytest.mark.parametrize("workers", [1, 4])
def test_batches_do_not_depend_on_threads_or_where_reading_starts(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n".join(text_lines(400, 3)))
    alone = settings(tmp_path, shuffle_rows=100)
    threaded = settings(tmp_path, shuffle_rows=100, prefetch=2, workers=workers)
    chunk = cut_data(alone, TEXT, 1 << 20).chunks[0]
    expected = [samples([b]) for b in read_chunk(chunk, TEXT, alone, 50)]
    for first in (0, 1, 5, len(expected), len(expected) + 3):
        assert [samples([b]) for b in read_chunk(chunk, TEXT, threaded, 50, first_batch=first)] == expected[first:]


def test_a_bad_line_is_named_by_byte_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"click:1 user:1\n" * 10 + b"rubbish\n" + b"click:1 user:1\n")
    data = settings(path)
    read = read_chunk(Chunk(str(path), "bytes", 100, path.stat().st_size), TEXT, data, 64)
    assert sum(len(b) for b in read) == 4
    assert read.stats.bad == 1
    assert read.stats.examples[0].startswith(f"{path} from byte 105:4: ")
    with pytest.raises(DataError, match=r"a\.txt:11: "):
        list(read_chunk(Chunk(str(path), "file"), TEXT, settings(path, on_bad="fail"), 64))


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"click:1 user:1\n" * 10)
    data = settings(path)
    chunk = cut_data(data, TEXT, 1 << 20).chunks[0]
    with path.open("ab") as file:
        file.write(b"click:1 user:1\n")
    with pytest.raises(FailedPrecondition, match=r"165 bytes, 150 when the run began"):
        list(read_chunk(chunk, TEXT, data, 64))


def test_rubbish_is_no_chunk() -> None:
    good = Chunk("a", "bytes", 3, 9, None, 9, 1, 2, 3).as_dict()
    assert Chunk.from_dict(good) == Chunk("a", "bytes", 3, 9, None, 9, 1, 2, 3)
    for key, value in [("id", "7"), ("source", None), ("epoch", -1), ("number", 1 << 32), ("seed", "x"), ("date", 4)]:
        with pytest.raises(DataError):
            Chunk.from_dict({**good, key: value})
    for key, wrong in [("unit", "lines"), ("start", 10), ("path", 5)]:
        with pytest.raises(DataError):
            Chunk.from_dict({**good, "source": {**good["source"], key: wrong}})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Ranged(http.server.SimpleHTTPRequestHandler):
        def send_head(self):  # type: ignore[no-untyped-def]
            asked.append(f"{self.command} {self.headers.get('Range', '')}".strip())
            data = (tmp_path / self.path.lstrip("/")).read_bytes()
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[start:])

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Ranged)) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()
        thread.join()


def test_files_of_a_web_server(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    url, asked = server
    (tmp_path / "a.txt").write_bytes(b"\n".join(text_lines(300, 8)))
    data = settings(f"{url}/a.txt")
    cut = check_union(data, TEXT, 4096)
    assert len(cut.chunks) > 3
    asked.clear()
    list(read_chunk(cut.chunks[2], TEXT, data, 64))
    assert any(line.startswith(f"GET bytes={cut.chunks[2].start - 1}-") for line in asked)
