"""The Criteo format against a plain Python reading of it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.data.formats.parsing import assert_bad, bags, feature_hash, parse

from elasticctr.data.schema import DenseSlot, SparseSlot


def test_log1p_of_every_small_count() -> None:
    counts = np.arange(10000)
    text = "".join(f"0\t{c}" + "\t" * 38 + "\n" for c in counts).encode()
    logs = parse(text, DenseSlot(name="I1", transform="log1p"), format="criteo").batch.dense[:, 0]
    np.testing.assert_allclose(logs, np.log1p(counts.astype(float)), rtol=1e-7)
    divided = parse(text, DenseSlot(name="I1", transform="log1p", diff=(10.0,)), format="criteo").batch.dense[:, 0]
    assert divided.tolist() == (logs / np.float64(10)).astype(np.float32).tolist()


def criteo_row(numbers: list[str], strings: list[str], label: str = "0") -> bytes:
    return "\t".join([label, *numbers, *strings]).encode()


def test_criteo_against_python() -> None:
    rng = np.random.default_rng(4)
    rows, n = [], 300
    for _ in range(n):
        numbers = ["" if rng.random() < 0.3 else str(int(rng.pareto(0.5) * 3) - 2) for _ in range(13)]
        strings = [
            "" if rng.random() < 0.2 else f"{rng.integers(2**31):0{rng.choice([8, 8, 8, 3, 12, 40])}x}"
            for _ in range(26)
        ]
        rows.append((numbers, strings, str(rng.integers(2))))
    text = b"\r\n".join(criteo_row(*row) for row in rows)
    slots: list[SparseSlot | DenseSlot] = [
        DenseSlot(name="dense", dim=13),
        *(SparseSlot(name=f"C{i + 1}") for i in range(26)),
    ]
    parsed = parse(text, *slots, format="criteo", hash_seed=3)
    assert (parsed.bad, len(parsed.batch)) == ([], n)
    assert parsed.batch.labels[:, 0].tolist() == [float(label) for *_, label in rows]
    assert parsed.batch.dense.tolist() == [[float(np.float32(x or 0)) for x in numbers] for numbers, *_ in rows]
    for s in range(26):
        expected = [[feature_hash(f"C{s + 1}", row[1][s], 3)] if row[1][s] else [] for row in rows]
        assert bags(parsed.batch, s) == expected


def test_criteo_slots_by_name_and_by_order() -> None:
    line = criteo_row([str(i) for i in range(1, 14)], [str(i) for i in range(1, 27)])
    by_name = (
        DenseSlot(name="I13"),
        DenseSlot(name="I2"),
        SparseSlot(name="C26", values="id"),
        SparseSlot(name="C3", values="id"),
    )
    batch = parse(line, *by_name, format="criteo").batch
    assert (batch.dense.tolist(), batch.values.tolist()) == ([[13, 2]], [26, 3])
    in_order: tuple[SparseSlot | DenseSlot, ...] = (
        DenseSlot(name="x", dim=6),
        DenseSlot(name="y", dim=7),
        *(SparseSlot(name=f"s{i}", values="id") for i in range(26)),
    )
    batch = parse(line, *in_order, format="criteo").batch
    assert (batch.dense.tolist(), batch.values.tolist()) == ([list(range(1, 14))], list(range(1, 27)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"0\t1\t2", "expected 40 columns separated by TAB, found 3"),
        (criteo_row([""] * 13, [""] * 27), "found 41"),
        (criteo_row([""] * 13, [""] * 500), "found over 64"),
        (criteo_row([""] * 13, [""] * 26, "2"), "label 'click' is '2'"),
        (criteo_row([""] * 13, [""] * 26, ""), "label 'click' is ''"),
        (criteo_row(["x"] + [""] * 12, [""] * 26), "has 'x', not a finite number"),
        (criteo_row(["1 2"] + [""] * 12, [""] * 26), "not a finite number"),
        (criteo_row(["1e99"] + [""] * 12, [""] * 26), "not a finite number"),
        (criteo_row([""] * 13, ["y"] + [""] * 25), "slot 'C1' has 'y', not a feasign"),
        (criteo_row([""] * 13, ["1 "] + [""] * 25), "not a feasign"),
    ],
)
def test_bad_criteo_line(line: bytes, reason: str) -> None:
    assert_bad(parse(line, DenseSlot(name="I1"), SparseSlot(name="C1", values="id"), format="criteo"), reason)
