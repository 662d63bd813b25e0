"""Vocabularies: exact counts by table, values outside replaced by their slot's own feasign, damaged files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticctr import _native
from elasticctr.cli.app import app
from elasticctr.data.batch import Batch
from elasticctr.data.derive import Deriver
from elasticctr.data.formats.writers import save_schema
from elasticctr.data.schema import Schema
from elasticctr.data.vocabulary import Replacer, Vocabulary, count_vocabulary, oov_feasign
from elasticctr.errors import ConfigError, Corruption, NotFound
from elasticctr.versions.samples import make_batch

SCHEMA = Schema.model_validate(
    {
        "slots": [
            {"name": "ad", "table": "ads"},
            {"name": "shown", "table": "ads"},
            {"name": "user"},
            {"kind": "cross", "name": "ad_x_user", "of": ["ad", "user"]},
        ],
        "hash_seed": 5,
    }
)


def samples(seed: int, count: int = 200) -> Batch:
    random = np.random.default_rng(seed)
    # Most values are small numbers, and few are large.
    slots = [
        [(random.random(random.integers(0, 3)) ** 4 * 60).astype(np.uint64).tolist() for _ in range(count)]
        for _ in range(3)
    ]
    return make_batch(SCHEMA, slots, [[] for _ in range(count)])


def test_counts_are_exact_and_by_table() -> None:
    batches = [samples(seed) for seed in range(3)]
    made = count_vocabulary(SCHEMA, batches, 7)
    counts = {"ads": Counter[int](), "main": Counter[int]()}
    for batch in batches:
        whole = Deriver(SCHEMA).whole(batch)
        for number, table in enumerate(("ads", "ads", "main", "main")):
            counts[table].update(whole.slot(number)[0].tolist())
    assert made.samples == 600
    for table, counter in counts.items():
        assert made.tables[table].tolist() == sorted(f for f, n in counter.items() if n >= 7)
        assert 0 < len(made.tables[table]) < made.distinct[table] == len(counter)


def test_values_outside_become_their_slots_own() -> None:
    made = count_vocabulary(SCHEMA, [samples(1)], 5)
    batch = samples(9)
    deriver = Deriver(SCHEMA)
    whole = deriver.whole(batch)
    before = whole.values.copy()
    values, offsets = Replacer(SCHEMA, made).replace(deriver.bags(batch), len(batch))
    assert np.array_equal(whole.values, before) and np.array_equal(batch.values, before[: len(batch.values)])
    n = len(batch)
    for number, slot in enumerate(SCHEMA.embedded):
        own = values[offsets[number * n] : offsets[(number + 1) * n]]
        was = whole.slot(number)[0]
        known = np.isin(was, made.tables[slot.table])
        assert 0 < known.sum() < len(known)
        assert np.array_equal(own, np.where(known, was, np.uint64(oov_feasign(slot.name, 5))))
    assert oov_feasign("ad", 5) == _native.xxh64(b"", _native.xxh64(b"ad", 5))
    with pytest.raises(ConfigError, match="no table 'main'"):
        Replacer(SCHEMA, Vocabulary({"ads": made.tables["ads"]}, 5, 1, {"ads": 1}))


def test_files_read_back_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    made = count_vocabulary(SCHEMA, [samples(1)], 5)
    path = tmp_path / "a.vocabulary"
    made.save(path)
    again = Vocabulary.load(path)
    assert (again.min_count, again.samples, again.distinct) == (5, 200, dict(made.distinct))
    assert all(np.array_equal(again.tables[name], made.tables[name]) for name in made.tables)
    body = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(200):
        bad = bytearray(body)
        bad[random.integers(len(bad))] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(bad))
        with pytest.raises(Corruption, match="not a whole vocabulary"):
            Vocabulary.load(path)
    for size in range(0, len(body), 7):
        path.write_bytes(body[:size])
        with pytest.raises(Corruption):
            Vocabulary.load(path)
    with pytest.raises(NotFound, match="elasticctr data vocabulary"):
        Vocabulary.load(tmp_path / "none")


def test_the_command_counts_a_log(tmp_path: Path) -> None:
    schema = Schema.model_validate({"slots": [{"name": "ad"}, {"name": "user", "table": "users"}]})
    save_schema(schema, tmp_path / "schema.yaml")
    (tmp_path / "log.txt").write_text("click:1 ad:1 user:4\nclick:0 ad:1 user:5\nclick:0 ad:2 user:5\n")
    arguments = ["data", "vocabulary", str(tmp_path / "log.txt"), str(tmp_path / "v"), "--json"]
    result = CliRunner().invoke(app, [*arguments, "--schema", str(tmp_path / "schema.yaml"), "--min-count", "2"])
    assert result.exit_code == 0, result.output
    tables = {"main": {"feasigns": 1, "distinct": 2}, "users": {"feasigns": 1, "distinct": 2}}
    assert json.loads(result.stdout)["tables"] == tables
    assert {k: v.tolist() for k, v in Vocabulary.load(tmp_path / "v").tables.items()} == {"main": [1], "users": [5]}
