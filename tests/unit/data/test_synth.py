"""Made-up logs: reproducible, honest about what can be attained, and readable by our own parser."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import DenseSlot, Format, Pooling, Schema, SparseSlot
from elasticctr.data.synth import (
    Generator,
    SynthSpec,
    avazu_spec,
    conversions_spec,
    criteo_spec,
    history_spec,
    schema_spec,
    write_log,
)
from elasticctr.data.synth.attainable import Attainable
from elasticctr.errors import AlreadyExists, ConfigError


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(criteo_spec(Format.SLOT).model_copy(update={"seed": 5}))


def _draw(generator: Generator, rows: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    parts = list(generator.rows(rows, first))
    return np.concatenate([p.logits[0] for p in parts]), np.concatenate([p.batch.labels[:, 0] for p in parts])


def _read(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("part-*")))


def _parse(folder: Path, data: bytes | None = None) -> Batch:
    schema = parse_settings(Schema, load_yaml(folder / "schema.yaml"), "schema.yaml")
    parsed = Parser(schema, threads=1).parse(_read(folder) if data is None else data, 1)
    assert parsed.bad_count == 0, parsed.bad
    return parsed.batch


def test_a_row_is_the_same_in_any_number_of_rows_and_files(tmp_path: Path) -> None:
    spec = criteo_spec(Format.SLOT, slots=4, dense=2, cardinalities=(50,))
    write_log(spec, tmp_path / "one", 20_000)
    write_log(spec, tmp_path / "three", 20_000, files=3)
    write_log(spec, tmp_path / "short", 9_000, files=2)
    whole = _read(tmp_path / "one")
    assert _read(tmp_path / "three") == whole
    assert whole.startswith(_read(tmp_path / "short"))
    assert whole.count(b"\n") == 20_000


def test_rows_can_be_drawn_from_the_middle(generator: Generator) -> None:
    whole, labels = _draw(generator, 20_000)
    part, part_labels = _draw(generator, 5_000, first=7_001)
    np.testing.assert_array_equal(part, whole[7_001:12_001])
    np.testing.assert_array_equal(part_labels, labels[7_001:12_001])


def test_another_seed_is_another_log(generator: Generator) -> None:
    other = Generator(criteo_spec(Format.SLOT).model_copy(update={"seed": 6}))
    assert not np.array_equal(_draw(generator, 1000)[1], _draw(other, 1000)[1])


def test_ctr_and_attainable_auc_are_as_asked(generator: Generator) -> None:
    logits, labels = _draw(generator, 120_000)
    assert labels.mean() == pytest.approx(0.25, abs=0.01)
    assert roc_auc_score(labels, logits) == pytest.approx(0.82, abs=0.006)
    rare = Generator(criteo_spec(Format.SLOT).model_copy(update={"ctr": 0.02, "auc": 0.75}))
    logits, labels = _draw(rare, 120_000)
    assert labels.mean() == pytest.approx(0.02, abs=0.003)
    assert roc_auc_score(labels, logits) == pytest.approx(0.75, abs=0.02)


def _check_calibrated(logits: np.ndarray, labels: np.ndarray) -> None:
    true = 1 / (1 + np.exp(-logits))
    chi_square = 0.0
    for part in np.array_split(np.argsort(logits), 10):
        chi_square += (labels[part] - true[part]).sum() ** 2 / (true[part] * (1 - true[part])).sum()
    # Beyond 35.6 one time in ten thousand if the labels were drawn from these probabilities.
    assert chi_square < 35.6


def test_true_probabilities_are_calibrated(generator: Generator) -> None:
    _check_calibrated(*_draw(generator, 120_000))


def test_attainable_equals_scikit_learn(generator: Generator) -> None:
    logits, labels = _draw(generator, 60_000)
    whole, first, second = Attainable(), Attainable(), Attainable()
    whole.add(logits, labels)
    first.add(logits[:1000], labels[:1000])
    second.add(logits[1000:], labels[1000:])
    first.merge(second)
    assert whole.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-5)
    assert whole.logloss == pytest.approx(log_loss(labels, 1 / (1 + np.exp(-logits))), rel=1e-9)
    assert (first.rows, first.auc) == (whole.rows, whole.auc)
    assert first.logloss == pytest.approx(whole.logloss, rel=1e-12)


def test_attainable_auc_of_equal_labels_is_none() -> None:
    part = Attainable()
    part.add(np.zeros(3), np.zeros(3, dtype=np.float32))
    assert part.auc is None


def test_criteo_and_slot_files_hold_the_same_samples(tmp_path: Path) -> None:
    for format in (Format.CRITEO, Format.SLOT):
        write_log(criteo_spec(format), tmp_path / format, 3_000)
    criteo, slot = _parse(tmp_path / "criteo"), _parse(tmp_path / "slot")
    np.testing.assert_array_equal(criteo.values, slot.values)
    np.testing.assert_array_equal(criteo.offsets, slot.offsets)
    np.testing.assert_array_equal(criteo.labels, slot.labels)
    # The slot files hold logarithms rounded to four digits.
    np.testing.assert_allclose(criteo.dense, slot.dense, atol=6e-5)


@pytest.mark.parametrize("format", [Format.FEASIGN, Format.LIBFFM, Format.LIBSVM])
def test_other_text_formats_read_back(tmp_path: Path, format: Format) -> None:
    dense = 0 if format is Format.FEASIGN else 3
    spec = criteo_spec(format, slots=5, dense=dense, cardinalities=(100,))
    write_log(spec, tmp_path, 2_000)
    batch = _parse(tmp_path)
    made = next(iter(Generator(spec).rows(2_000))).batch
    np.testing.assert_array_equal(batch.labels, made.labels)
    np.testing.assert_array_equal(np.sort(batch.values), np.sort(made.values))
    if format is not Format.LIBSVM:
        np.testing.assert_array_equal(batch.offsets, made.offsets)


def test_ids_follow_zipf_and_the_cardinality_limit() -> None:
    spec = criteo_spec(Format.SLOT, slots=1, dense=0, cardinalities=(1000,)).model_copy(update={"missing": 0.0})
    rows = list(Generator(spec).rows(100_000))
    values = np.concatenate([r.batch.values for r in rows])
    _, counts = np.unique(values, return_counts=True)
    counts = np.sort(counts)[::-1]
    assert len(counts) <= 1000
    # The share of rank r is the mass of the continuous law in [r, r + 1).
    exponent, top = 1.05, 1001.0
    edges = np.arange(1, 12, dtype=np.float64)
    law = (edges ** (1 - exponent) - 1) / (top ** (1 - exponent) - 1)
    np.testing.assert_allclose(counts[:10] / len(values), np.diff(law), rtol=0.05)


def test_id_space_and_multi_valued_slots() -> None:
    schema = Schema(slots=(SparseSlot(name="a"), SparseSlot(name="tags", pooling=Pooling.MEAN)))
    spec = schema_spec(schema, 500).model_copy(update={"id_space": 1001, "missing": 0.0, "values_mean": 4.0})
    batch = next(iter(Generator(spec).rows(8000))).batch
    assert batch.values.max() < 1001
    counts = np.diff(batch.slot(1)[1])
    assert counts.min() >= 1 and counts.mean() == pytest.approx(4.0, rel=0.03)
    assert set(np.diff(batch.slot(0)[1])) == {1}


def test_transforms_get_values_of_their_kind(tmp_path: Path) -> None:
    schema = Schema(
        slots=(
            DenseSlot(name="counts", dim=2, transform="log1p"),
            DenseSlot(name="scaled", dim=2, transform="scale", min=(-3.0, 10.0), diff=(603.0, 2.0)),
            DenseSlot(name="plain"),
            SparseSlot(name="s", values="string"),
        )
    )
    write_log(schema_spec(schema, 100), tmp_path, 5_000)
    dense = _parse(tmp_path).dense
    assert dense[:, :2].min() >= 0 and dense[:, :2].max() > 1
    assert dense[:, 2:4].min() == 0 and dense[:, 2:4].max() <= 1.0001  # a missing value reads as 0
    assert abs(dense[:, 4].mean()) < 0.1 and dense[:, 4].std() == pytest.approx(1, abs=0.1)


def test_report_truth_and_schema_agree(tmp_path: Path) -> None:
    report = write_log(avazu_spec(Format.SLOT), tmp_path, 6_000, files=2)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["rows"] == report.rows == sum(f.rows for f in report.files) == 6_000
    assert truth["auc"] == report.auc and truth["logloss"] == report.logloss
    batch = _parse(tmp_path)
    assert batch.labels.mean() == pytest.approx(report.ctr)
    first = _parse(tmp_path, (tmp_path / report.files[0].path).read_bytes())
    assert first.labels.mean() == pytest.approx(report.files[0].ctr)
    assert report.bytes == sum(path.stat().st_size for path in tmp_path.glob("part-*"))


def test_date_tree(tmp_path: Path) -> None:
    spec = criteo_spec(Format.SLOT, slots=2, dense=0, cardinalities=(10,))
    report = write_log(spec, tmp_path, 1_000, files=2, dates=(date(2026, 1, 31), date(2026, 2, 1)), hours=True)
    assert len(report.files) == 2 * 24 * 2
    assert report.files[0].path == "20260131/00/part-00000.txt"
    assert report.files[-1].path == "20260201/23/part-00001.txt"
    assert len(list(tmp_path.rglob("donefile"))) == 48
    assert _read(tmp_path).count(b"\n") == 1_000


def test_a_log_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one sample and one file, not 0 and 1; raise --rows"):
        write_log(criteo_spec(Format.SLOT), tmp_path / "log", 0)
    assert not (tmp_path / "log").exists()


def test_one_row_has_no_auc(tmp_path: Path) -> None:
    report = write_log(criteo_spec(Format.SLOT), tmp_path, 1)
    assert report.rows == 1 and report.auc is None
    assert (tmp_path / "part-00000.txt").read_bytes().count(b"\n") == 1


def test_a_log_is_not_overwritten_unasked(tmp_path: Path) -> None:
    spec = criteo_spec(Format.SLOT, slots=1, dense=0)
    write_log(spec, tmp_path, 10)
    with pytest.raises(AlreadyExists, match="--overwrite"):
        write_log(spec, tmp_path, 20)
    assert write_log(spec, tmp_path, 20, overwrite=True).rows == 20


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--dense 0"):
        write_log(criteo_spec(Format.FEASIGN), tmp_path / "a", 10)
    with pytest.raises(ConfigError, match="criteo format"):
        avazu_spec(Format.CRITEO)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        write_log(criteo_spec(Format.SLOT), tmp_path / "file", 10)
    with pytest.raises(ValueError, match="cardinalities"):
        SynthSpec(schema_=Schema(slots=(SparseSlot(name="a"),)), cardinalities=(), multi=())


def test_a_history_decides_by_whether_it_holds_its_target(tmp_path: Path) -> None:
    spec = history_spec(Format.SLOT)
    generator = Generator(spec)
    logits, labels = _draw(generator, 40_000)
    _check_calibrated(logits, labels)
    assert roc_auc_score(labels, logits) == pytest.approx(0.82, abs=0.012)
    long = Generator(spec.model_copy(update={"values_mean": 18.0}))  # some have more values than are kept
    drawn = long._draw(3)
    offsets = [np.concatenate([[0], np.cumsum(counts)]) for counts in drawn.counts]
    for row in range(300):
        items = drawn.ranks[1][offsets[1][row] : offsets[1][row + 1]].tolist()
        history = drawn.ranks[5][offsets[5][row] : offsets[5][row + 1]].tolist()[-20:]
        assert drawn.parts[0][3, row] == any(item in history for item in items)
    assert {int(drawn.counts[s][:300].min()) for s in (1, 5)} == {0}, "missing ones were not tried"
    assert drawn.counts[5][:300].max() > 20
    assert 0.1 < drawn.parts[0][3].mean() < 0.6


@pytest.mark.parametrize("format", [Format.SLOT, Format.CSV])
def test_values_of_a_history_are_those_of_its_target(tmp_path: Path, format: Format) -> None:
    write_log(history_spec(format), tmp_path, 3_000)
    if format is Format.CSV:
        assert (tmp_path / "part-00000.csv").read_text().splitlines()[1].count("|") > 0
        return
    batch = _parse(tmp_path)
    items, history = set(batch.slot(1)[0].tolist()), set(batch.slot(5)[0].tolist())
    assert len(items & history) > 0.9 * min(len(items), len(history))
    assert np.diff(batch.slot(5)[1]).mean() == pytest.approx(9.3, abs=0.6)


def test_conversions_come_after_clicks(tmp_path: Path) -> None:
    spec = conversions_spec(Format.SLOT).model_copy(update={"conversion": 0.3})
    rows = list(Generator(spec).rows(120_000))
    logits = np.concatenate([r.logits for r in rows], axis=1)
    labels = np.concatenate([r.batch.labels for r in rows])
    click, conversion = labels.T
    assert not (conversion > click).any()
    assert click.mean() == pytest.approx(0.25, abs=0.01)
    assert conversion[click > 0].mean() == pytest.approx(0.3, abs=0.015)
    for k in range(2):
        _check_calibrated(logits[k], labels[:, k])
    assert roc_auc_score(click, logits[0]) == pytest.approx(0.82, abs=0.01)
    # What decides about a conversion is half of it something else than what decides about the click.
    alone = roc_auc_score(conversion, logits[0])
    assert roc_auc_score(conversion, logits[1]) > alone + 0.03 > 0.6
    report = write_log(spec, tmp_path, 30_000, files=2)
    truth = json.loads((tmp_path / "truth.json").read_text())["labels"]
    assert list(truth) == ["click", "conversion"]
    for k, name in enumerate(truth):
        assert truth[name]["auc"] == report.labels[name].auc
        assert truth[name]["auc"] == pytest.approx(roc_auc_score(labels[:30_000, k], logits[k, :30_000]), abs=1e-4)
        of_last = report.files[1].labels[name].auc
        assert of_last == pytest.approx(roc_auc_score(labels[15_000:30_000, k], logits[k, 15_000:30_000]), abs=1e-4)
    assert (report.auc, report.ctr) == (truth["click"]["auc"], truth["click"]["ctr"])
    np.testing.assert_array_equal(_parse(tmp_path).labels, labels[:30_000])


def test_any_number_of_labels_that_are_frequent_enough() -> None:
    schema = Schema(label=("click", "cart", "buy"), slots=(SparseSlot(name="a"), SparseSlot(name="b")))
    spec = schema_spec(schema, 50).model_copy(update={"ctr": 0.5, "conversion": 0.5})
    shares = next(iter(Generator(spec).rows(8192))).batch.labels.mean(axis=0)
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.125], atol=0.03)
    with pytest.raises(ConfigError, match=r"'buy' would happen too rarely.*--conversion"):
        Generator(spec.model_copy(update={"conversion": 0.005}))


def test_histories_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="history does not fit the criteo format"):
        history_spec(Format.CRITEO)
    with pytest.raises(ConfigError, match="conversions does not fit the libsvm format"):
        conversions_spec(Format.LIBSVM)
    spec = history_spec(Format.SLOT)
    given = {name: getattr(spec, name) for name in SynthSpec.model_fields}
    with pytest.raises(ConfigError, match="'history' has the values of its target"):
        parse_settings(SynthSpec, given | {"cardinalities": (9, 9, 9, 9, 9, 8)}, "synth")
    with pytest.raises(ConfigError, match="'history' has several values, its target one"):
        parse_settings(SynthSpec, given | {"multi": (False,) * 6}, "synth")
