"""Crosses and buckets: golden feasigns, missing numbers in every format, schemas that do not fit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.serve.feedback.writing import HOUR

from elasticctr import _native
from elasticctr.config import parse_settings
from elasticctr.data.batch import Batch
from elasticctr.data.cache import build_cache
from elasticctr.data.dataset import Dataset
from elasticctr.data.derive import Deriver
from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import Schema
from elasticctr.data.settings import ReadOptions
from elasticctr.errors import ConfigError
from elasticctr.serve.feedback.join import JoinOptions, join
from elasticctr.storage import resolve

MISSING = (1 << 64) - 1
SLOTS: list[dict[str, Any]] = [
    {"name": "ad", "values": "id"},
    {"name": "user", "values": "id"},
    {"kind": "dense", "name": "price", "transform": "log1p"},
    {"kind": "bucket", "name": "price_bucket", "of": "price", "by": "log2"},
    {"kind": "cross", "name": "ad_x_user", "of": ["ad", "user"], "max_values": 3},
    {"kind": "cross", "name": "ad_x_price", "of": ["ad", "price_bucket"]},
]


def make(slots: list[dict[str, Any]] = SLOTS, **more: Any) -> Schema:
    return parse_settings(Schema, {"slots": slots, **more}, "schema")


def hash_parts(name: str, *parts: int, seed: int = 0) -> int:
    data = b"".join(part.to_bytes(8, "little") for part in parts)
    return _native.xxh64(data, _native.xxh64(name.encode(), seed))


def values_of(schema: Schema, batch: Batch, name: str) -> list[list[int]]:
    number = [slot.name for slot in schema.embedded].index(name)
    values, offsets = Deriver(schema).whole(batch).slot(number)
    return [values[a:b].tolist() for a, b in pairwise(offsets)]


def parse(schema: Schema, text: bytes) -> Batch:
    parsed = Parser(schema, threads=1).parse(text)
    assert not parsed.bad
    return parsed.batch


@pytest.mark.parametrize(
    ("seed", "parts", "feasign"),
    [
        (0, (1, 7), 18371345536530954884),
        (0, (7, 1), 6666815820157071966),
        (42, (1, 7), 6139511522264578801),
    ],
)
def test_crosses_are_the_documented_hash(seed: int, parts: tuple[int, int], feasign: int) -> None:
    schema = make(hash_seed=seed)
    batch = parse(schema, f"click:1 ad:{parts[0]} user:{parts[1]}\n".encode())
    assert values_of(schema, batch, "ad_x_user") == [[feasign]]


def test_buckets_are_the_documented_hash() -> None:
    schema = make()
    batch = parse(schema, b"click:1 price:0\nclick:1 price:7\nclick:1 price:14.9\nclick:0 ad:4\n")
    golden = {0: 2166178773787623070, 3: 17623289947152905188, MISSING: 1898477908879958983}
    assert values_of(schema, batch, "price_bucket") == [[golden[0]], [golden[3]], [golden[3]], [golden[MISSING]]]
    assert values_of(schema, batch, "ad_x_price")[3] == [hash_parts("ad_x_price", 4, golden[MISSING])]


def test_all_combinations_up_to_the_bound_and_none_without_a_part() -> None:
    schema = make()
    batch = parse(schema, b"click:1 ad:1 ad:2 user:7 user:8\nclick:0 ad:5\nclick:0 ad:9 user:9\n")
    pairs = [hash_parts("ad_x_user", a, u) for a in (1, 2) for u in (7, 8)]
    assert values_of(schema, batch, "ad_x_user") == [pairs[:3], [], [hash_parts("ad_x_user", 9, 9)]]
    last = make([*SLOTS[:4], {**SLOTS[4], "pooling": "none"}])
    assert values_of(last, batch, "ad_x_user")[0] == pairs[1:]
    # Slots of the log are as they were, and batches hold nothing else.
    assert values_of(schema, batch, "user") == [[7, 8], [], [9]] and len(batch.offsets) == 2 * 3 + 1


def test_missing_numbers_are_told_from_zeros_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("click,ad,user,price\n1,1,2,\n0,1,2,0\n0,1,2,-0\n0,1,2,3\n")
    expected = [[hash_parts("price_bucket", bucket)] for bucket in (MISSING, 0, MISSING, 2)]
    csv = make(format="csv")
    with Dataset(str(tmp_path / "a.csv"), csv).iterate(10) as batches:
        batch = next(batches)
    assert values_of(csv, batch, "price_bucket") == expected
    assert batch.dense[:, 0].tolist() == pytest.approx([0, 0, 0, np.log(4)])
    slot = make()
    text = b"click:1 ad:1\nclick:0 price:0\nclick:0 price:-0\nclick:0 price:3\n"
    assert values_of(slot, parse(slot, text), "price_bucket") == expected
    wide = [
        {"kind": "dense", "name": "x", "dim": 13, "transform": "log1p"},
        {"kind": "bucket", "name": "price_bucket", "of": "x", "index": 2, "by": "log2"},
    ]
    criteo = make(wide, format="criteo")
    text = b"".join(b"\t".join([b"1", b"5", b"5", cell, *[b""] * 36]) + b"\n" for cell in (b"", b"0", b"-0", b"3"))
    assert values_of(criteo, parse(criteo, text), "price_bucket") == expected


def test_dense_slots_without_buckets_keep_their_bits() -> None:
    schema = make(SLOTS[:3])
    batch = parse(schema, b"click:1 ad:1\n")
    assert not np.signbit(batch.dense).any()
    values, offsets = Deriver(schema).bags(batch)
    assert values is batch.values and offsets is batch.offsets


def test_joined_files_make_the_same_buckets_of_transformed_floats() -> None:
    schema = make()
    raw = parse(schema, b"click:1 ad:1 price:6.9\nclick:1 ad:1 price:7\nclick:0 ad:1\n")
    text = b"".join(
        b"click:1 ad:1" + (b" price:%r" % float(x) if not np.signbit(x) else b"") + b"\n" for x in raw.dense[:, 0]
    )
    joined = parse(schema.joined(schema.format), text)
    assert values_of(schema, joined, "price_bucket") == values_of(schema, raw, "price_bucket")


def test_fingerprints_of_plain_schemas_never_change() -> None:
    schema = make(SLOTS[:3])
    assert schema.fingerprint() == "c88396c35dc30983"
    assert make().fingerprint() != schema.fingerprint()


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ({"kind": "cross", "name": "c", "of": ["ad"]}, "2 items"),
        ({"kind": "cross", "name": "c", "of": ["ad", "nobody"]}, "crosses 'nobody'"),
        ({"kind": "cross", "name": "c", "of": ["ad", "price"]}, "crosses 'price'"),
        ({"kind": "cross", "name": "c", "of": ["ad", "ad"]}, "with itself"),
        ({"kind": "bucket", "name": "b", "of": "ad", "by": "log2"}, "not a dense slot"),
        ({"kind": "bucket", "name": "b", "of": "price", "index": 1, "by": "log2"}, "none"),
        ({"kind": "bucket", "name": "b", "of": "price"}, "needs a list"),
        ({"kind": "bucket", "name": "b", "of": "price", "edges": [2, 1]}, "ascend"),
        ({"kind": "bucket", "name": "b", "of": "price", "by": "log2", "edges": [1]}, "leave them out"),
    ],
)
def test_slots_that_do_not_fit_are_refused(slot: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make([*SLOTS, slot])


def test_quantiles_without_edges_are_refused() -> None:
    schema = make([*SLOTS, {"kind": "bucket", "name": "b", "of": "price", "by": "quantile"}])
    with pytest.raises(ConfigError, match="elasticctr data buckets"):
        Deriver(schema)


def test_a_cached_set_has_the_same_crosses_and_buckets(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"click:1 ad:1 user:7 price:6.9\nclick:0 ad:2 user:7 price:0\nclick:0 ad:1\n")
    schema, options = make(), ReadOptions()
    build_cache(tmp_path / "set", resolve(str(tmp_path / "log"), options), schema, options)
    read = {name: Batch.concat(list(Dataset(str(tmp_path / name), schema).iterate(2))) for name in ("log", "set")}
    for slot in schema.derived:
        assert values_of(schema, read["set"], slot.name) == values_of(schema, read["log"], slot.name)
    first, second, missing = values_of(schema, read["set"], "price_bucket")
    assert first != second != missing != first


def test_joined_requests_have_the_crosses_and_buckets_they_were_served_with(tmp_path: Path) -> None:
    """Also where a number was missing, which a request's log has as -0.0."""
    schema = make()
    served = parse(schema, b"click:1 ad:1 user:7 price:6.9\nclick:0 ad:2 user:7 price:0\nclick:0 ad:1 user:9\n")
    log = _native.RequestLog(str(tmp_path / "log"))
    bags = [[served.slot(s)[0][i : i + 1].tolist() for s in range(2)] for i in range(3)]
    rows = [[], *([(s, values) for s, values in enumerate(sample)] for sample in bags)]
    dense = served.dense.tolist()
    names = ["ad", "user"]
    assert log.add(HOUR, "r", "ctr", 1, "live", "json", b"{}", names, [("price", 1)], rows, dense, [[0.5]] * 3)
    log.stop()
    (tmp_path / "clicks").write_text(f'{{"id": "r", "index": 0, "time": {HOUR + 1}}}\n')
    join(JoinOptions(requests=(str(tmp_path / "log"),), clicks=(str(tmp_path / "clicks"),), out=tmp_path / "out"))
    (part,) = (tmp_path / "out").glob("[0-9]*/*/part-*")
    joined = parse(schema.joined(schema.format), part.read_bytes())
    order = np.argsort(-joined.labels[:, 0], kind="stable").tolist()
    for slot in schema.derived:
        found = values_of(schema, joined, slot.name)
        assert [found[i] for i in order] == values_of(schema, served, slot.name), slot.name
