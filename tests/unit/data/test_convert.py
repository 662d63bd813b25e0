"""Conversions between all pairs of formats keep every sample, and say what they cannot keep."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.batch import Batch
from elasticctr.data.convert import convert_log
from elasticctr.data.dataset import Dataset
from elasticctr.data.formats.writers import open_writer
from elasticctr.data.schema import DenseSlot, Format, Schema, SparseSlot
from elasticctr.data.synth import criteo_spec, write_log
from elasticctr.errors import AlreadyExists, ConfigError, DataError

SUFFIXES = {Format.CSV: ".csv.gz", Format.PARQUET: ".parquet"}


def _schema(format: Format, dense: bool) -> Schema:
    slots: tuple[SparseSlot, ...] = (
        SparseSlot(name="a", values="id", separator="|"),
        SparseSlot(name="b", values="id", separator="|"),
    )
    if format is Format.LIBSVM:
        slots = slots[:1]
    return Schema(format=format, slots=(*((DenseSlot(name="d", dim=2), DenseSlot(name="e")) if dense else ()), *slots))


def _make(schema: Schema, n: int = 400) -> Batch:
    draw = np.random.default_rng(7)
    slots = len(schema.sparse)
    offsets = np.concatenate([[0], np.cumsum(draw.integers(0, 4, slots * n))]).astype(np.int32)
    values = draw.integers(100, 2**64, int(offsets[-1]), dtype=np.uint64)
    values[:2] = 2**64 - 1, 2**63
    dense = draw.normal(size=(n, schema.dense_dim)).astype(np.float32)
    labels = draw.integers(0, 2, (n, 1)).astype(np.float32)
    ones = np.ones(n, np.float32)
    return Batch(schema, labels, dense, values, offsets, ones, ones)


def _load(path: Path) -> Batch:
    schema_path = path.with_name(path.name.split(".")[0] + ".schema.yaml")
    schema = parse_settings(Schema, load_yaml(schema_path), str(schema_path))
    return Batch.concat(list(Dataset(str(path), schema).iterate(128)))


def _assert_same(a: Batch, b: Batch) -> None:
    for name in ("labels", "dense", "values", "offsets", "weights"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


PAIRS = [p for p in product(Format, Format) if Format.CRITEO not in p]


@pytest.mark.parametrize(("start", "end"), PAIRS, ids=lambda f: str(f))
def test_there_and_back(tmp_path: Path, start: Format, end: Format) -> None:
    dense = Format.FEASIGN not in (start, end)
    schema = _schema(Format.LIBSVM if Format.LIBSVM in (start, end) else start, dense)
    schema = schema.model_copy(update={"format": start})
    batch = _make(schema)
    first = tmp_path / f"first{SUFFIXES.get(start, '.txt.zst')}"
    with open_writer(first, schema) as writer:
        writer.write(batch)
    second = tmp_path / f"second{SUFFIXES.get(end, '.txt')}"
    report = convert_log(str(first), second, to=end, schema=schema)
    assert (report.rows, report.bad, report.warnings) == (400, 0, ())
    _assert_same(_load(second), batch)
    third = tmp_path / f"third{SUFFIXES.get(start, '.txt')}"
    given = parse_settings(Schema, load_yaml(tmp_path / "second.schema.yaml"), "second.schema.yaml")
    convert_log(str(second), third, to=start, schema=given)
    _assert_same(_load(third), batch)


@pytest.mark.parametrize("to", [Format.SLOT, Format.LIBFFM, Format.CSV, Format.PARQUET])
def test_criteo_becomes_feasigns_and_says_so(tmp_path: Path, to: Format) -> None:
    write_log(criteo_spec(Format.CRITEO), tmp_path / "in", 500)
    source = tmp_path / "in" / "part-00000.txt"
    out = tmp_path / f"out{SUFFIXES.get(to, '.txt')}"
    report = convert_log(str(source), out, to=to)
    assert any("cannot be undone" in w for w in report.warnings)
    assert any("after their transform" in w for w in report.warnings)
    schema = criteo_spec(Format.CRITEO).schema_
    _assert_same(_load(out), Batch.concat(list(Dataset(str(source), schema).iterate(128))))


def test_libsvm_needs_one_slot(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("click:1 a:100 b:200 b:300\nclick:0 b:7\n")
    with pytest.raises(ConfigError, match="--merge-slots"):
        convert_log(str(tmp_path / "in"), tmp_path / "x", to=Format.LIBSVM)
    report = convert_log(str(tmp_path / "in"), tmp_path / "x", to=Format.LIBSVM, merge=True)
    assert any("merged into one" in w for w in report.warnings)
    assert (tmp_path / "x").read_text() == "1 100:1 200:1 300:1\n0 7:1\n"


def test_shows_are_not_lost_in_silence(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("1 0 5:7\n3 1 6:7\n")
    report = convert_log(str(tmp_path / "in"), tmp_path / "x", to=Format.SLOT)
    assert any("show" in w for w in report.warnings)
    report = convert_log(str(tmp_path / "in"), tmp_path / "y", to=Format.FEASIGN)
    assert report.warnings == ()
    assert (tmp_path / "y").read_text() == (tmp_path / "in").read_text()


def test_bad_lines_are_counted_or_fatal(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("click:1 a:1\nclick:2 a:1\nclick:0 a:2\n")
    report = convert_log(str(tmp_path / "in"), tmp_path / "x", to=Format.SLOT)
    assert (report.rows, report.bad, report.lines) == (2, 1, 3)
    assert report.bad_lines[0].startswith(f"{tmp_path / 'in'}:2: ")
    with pytest.raises(DataError, match=":2: "):
        convert_log(str(tmp_path / "in"), tmp_path / "y", to=Format.SLOT, strict=True)
    assert not (tmp_path / "y").exists() and not list(tmp_path.glob(".y*"))


def test_no_value_is_cut_off(tmp_path: Path) -> None:
    line = "click:1 " + " ".join(f"a:{i}" for i in range(5000))
    (tmp_path / "in").write_text(line + "\n")
    convert_log(str(tmp_path / "in"), tmp_path / "x", to=Format.SLOT)
    assert (tmp_path / "x").read_text() == line + "\n"


@pytest.mark.parametrize("to", [Format.FEASIGN, Format.LIBSVM, Format.LIBFFM, Format.CRITEO])
def test_what_a_target_cannot_hold_is_refused(tmp_path: Path, to: Format) -> None:
    (tmp_path / "in").write_text("click:1 buy:0 w:2 d:0.5 a:1\n")
    slots = (DenseSlot(name="d"), SparseSlot(name="a"))
    weighted = Schema(weight="w", slots=slots)
    with pytest.raises(ConfigError, match=r"weights|strings"):
        convert_log(str(tmp_path / "in"), tmp_path / "x", to=to, schema=weighted)
    two = Schema(label=("click", "buy"), slots=slots)
    with pytest.raises(ConfigError, match=r"one label|strings"):
        convert_log(str(tmp_path / "in"), tmp_path / "x", to=to, schema=two)
    if to is Format.FEASIGN:
        with pytest.raises(ConfigError, match="dense"):
            convert_log(str(tmp_path / "in"), tmp_path / "x", to=to, schema=Schema(slots=slots))
    assert not (tmp_path / "x").exists()


def test_names_and_existing_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("click:1 a:1\n")
    with pytest.raises(ConfigError, match="--to"):
        convert_log(str(tmp_path / "in"), tmp_path / "x.dat")
    assert convert_log(str(tmp_path / "in"), tmp_path / "x.csv").to_format == "csv"
    with pytest.raises(AlreadyExists):
        convert_log(str(tmp_path / "in"), tmp_path / "x.csv")
    (tmp_path / "bad").write_text("click:7 a:1\n")
    with pytest.raises(DataError, match="no line is a sample"):
        convert_log(str(tmp_path / "bad"), tmp_path / "z.csv", schema=Schema(slots=(SparseSlot(name="a"),)))
    assert not (tmp_path / "z.csv").exists()
