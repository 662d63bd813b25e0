"""Inspection against numbers counted by plain Python, and sketches against the truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from elasticctr.data.inspection import inspect_log
from elasticctr.data.inspection.sketch import SMALLEST, Distinct, Quantiles, SlotSketch, wilson
from elasticctr.data.schema import Format, Schema, SparseSlot
from elasticctr.errors import DataError, NotFound


@pytest.fixture
def log(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    lines = []
    for _ in range(3000):
        tags = " ".join(f"tag:{draw.integers(0, 30)}" for _ in range(draw.integers(0, 4)))
        lines.append(f"click:{int(draw.random() < 0.3)} x:{draw.normal():.3f} user:{draw.integers(0, 500)} {tags}")
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_everything_is_counted_as_plain_python_does(log: Path) -> None:
    found = inspect_log(str(log), top=3)
    samples = [[token.split(":") for token in line.split()] for line in log.read_text().splitlines()]
    clicks = [int(sample[0][1]) for sample in samples]
    assert (found.rows, found.bad, found.is_complete) == (3000, 0, True)
    assert found.labels[0].mean == pytest.approx(np.mean(clicks))
    assert found.labels[0].low < 0.3 < found.labels[0].high
    assert found.bytes_per_row == pytest.approx(log.stat().st_size / 3000)
    tags = [[v for n, v in sample if n == "tag"] for sample in samples]
    shown = {slot.name: slot for slot in found.sparse}
    assert set(shown) == {"user", "tag"}
    assert shown["tag"].coverage == pytest.approx(np.mean([bool(t) for t in tags]))
    assert (shown["tag"].fewest, shown["tag"].most) == (0, 3)
    assert shown["tag"].mean == pytest.approx(np.mean([len(t) for t in tags]))
    assert (shown["tag"].distinct, shown["tag"].distinct_is_exact) == (30, True)
    counts = Counter(v for t in tags for v in t)
    clicked = Counter(v for t, c in zip(tags, clicks, strict=True) for v in t if c)
    for top in shown["tag"].top:
        assert (top.shows, top.clicks) == (counts[str(top.value)], clicked[str(top.value)])
        assert top.low < top.ctr < top.high
    assert [t.shows for t in shown["tag"].top] == [c for _, c in counts.most_common(3)]
    x = np.array([float(sample[1][1]) for sample in samples])
    dense = found.dense[0]
    assert (dense.min, dense.max) == pytest.approx((x.min(), x.max()))
    assert dense.quantiles == pytest.approx(tuple(np.quantile(x, (0.01, 0.25, 0.5, 0.75, 0.99))), abs=1e-6)
    assert dense.mean == pytest.approx(x.mean(), abs=1e-6)


def test_bad_lines_are_shown_with_path_and_line(log: Path) -> None:
    lines = log.read_text().splitlines()
    lines[4] = "click:2 x:1 user:3"
    lines[9] = "click:1 x:1 user:99999999999999999999"
    log.write_text("\n".join(lines))
    found = inspect_log(str(log))
    assert (found.rows, found.bad, found.lines) == (2998, 2, 3000)
    assert found.bad_lines[0].startswith(f"{log}:5: ") and "label" in found.bad_lines[0]
    assert found.bad_lines[1].startswith(f"{log}:10: ")


def test_row_limit_stops_early(log: Path) -> None:
    found = inspect_log(str(log), rows=100)
    assert (found.rows, found.is_complete, found.bytes_per_row) == (100, False, None)


def test_a_given_schema_is_used(log: Path) -> None:
    found = inspect_log(str(log), Schema(slots=(SparseSlot(name="user"), SparseSlot(name="absent"))))
    assert [slot.name for slot in found.sparse] == ["user", "absent"]
    assert (found.sparse[1].coverage, found.sparse[1].distinct, found.sparse[1].top) == (0.0, 0, ())


def test_what_cannot_be_inspected(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        inspect_log(str(tmp_path / "absent"))
    with pytest.raises(NotFound, match="without sample files"):
        inspect_log(str(tmp_path))
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="is empty"):
        inspect_log(str(tmp_path / "empty"))
    (tmp_path / "garbage").write_bytes(np.random.default_rng(0).bytes(100_000))
    with pytest.raises(DataError, match="is binary"):
        inspect_log(str(tmp_path / "garbage"))
    (tmp_path / "wrong").write_text("click:1 1:2\n" * 5)
    with pytest.raises(DataError, match="no line is a sample of the criteo format"):
        inspect_log(str(tmp_path / "wrong"), format=Format.CRITEO)


def test_distinct_is_exact_then_near() -> None:
    draw = np.random.default_rng(3)
    sketch = Distinct()
    few = draw.integers(0, 2**64, SMALLEST - 1, dtype=np.uint64)
    sketch.add(few)
    sketch.add(few)
    assert (sketch.count, sketch.is_exact) == (len(np.unique(few)), True)
    for start in range(0, 400_000, 50_000):
        sketch.add(np.arange(start, start + 100_000, dtype=np.uint64))
    assert not sketch.is_exact
    # Four standard errors of the estimate.
    assert sketch.count == pytest.approx(450_000 + SMALLEST - 1, rel=4 / np.sqrt(SMALLEST))


def test_frequent_values_survive_a_long_tail() -> None:
    draw = np.random.default_rng(4)
    sketch = SlotSketch(frequent=64)
    for _ in range(10):
        values = np.concatenate(
            [np.repeat(np.arange(5, dtype=np.uint64), 4000), draw.integers(100, 2**60, 60_000, dtype=np.uint64)]
        )
        draw.shuffle(values)
        sketch.add(values, (values == 3).astype(np.float64))
    top = sketch.top(5)
    assert {t.value for t in top} == {0, 1, 2, 3, 4}
    for t in top:
        assert t.shows <= 40_000 <= t.shows + sketch.missed
        assert t.clicks == (t.shows if t.value == 3 else 0)


def test_quantiles_of_more_rows_than_are_kept() -> None:
    quantiles = Quantiles(1, rows=4096)
    for start in range(0, 200_000, 10_000):
        quantiles.add(np.arange(start, start + 10_000, dtype=np.float32)[:, None])
    # Five standard errors of the median of 4096 samples.
    assert quantiles.at((0.5,))[0, 0] == pytest.approx(100_000, abs=5 * 200_000 * 0.5 / 64)


def test_wilson_interval() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    # Published example: 10 of 100 → 0.0552..0.1744.
    assert wilson(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    low, high = wilson(0, 10)
    assert low == 0.0 and 0.2 < high < 0.35
