"""Every optimizer against its formula in float64: duplicates in the batch, regularisers on, several steps, a save and
a load in the middle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.table import (
    AdagradSettings,
    AdamSettings,
    FtrlSettings,
    NormalSettings,
    RowwiseAdagradSettings,
    SegmentSettings,
    SgdSettings,
    SlotTarget,
    Table,
    TableSettings,
)


class Sgd:
    def __init__(self, s: Any, w: np.ndarray) -> None:
        self.s, self.w = s, w

    def step(self, i: int, g: np.ndarray, t: int, scale: float) -> None:
        self.w[i] -= self.s.learning_rate * scale * (g + self.s.l2 * self.w[i])


class Adagrad:
    def __init__(self, s: Any, w: np.ndarray) -> None:
        self.s, self.w = s, w
        self.a = np.full_like(w, s.initial_accumulator)

    def step(self, i: int, g: np.ndarray, t: int, scale: float) -> None:
        g = g + self.s.l2 * self.w[i]
        self.a[i] += g**2
        self.w[i] -= self.s.learning_rate * scale * g / (np.sqrt(self.a[i]) + self.s.epsilon)


class RowwiseAdagrad:
    def __init__(self, s: Any, w: np.ndarray) -> None:
        self.s, self.w = s, w
        self.a = np.full(len(w), s.initial_accumulator)

    def step(self, i: int, g: np.ndarray, t: int, scale: float) -> None:
        g = g + self.s.l2 * self.w[i]
        self.a[i] += np.mean(g**2)
        self.w[i] -= self.s.learning_rate * scale * g / (np.sqrt(self.a[i]) + self.s.epsilon)


class Adam:
    def __init__(self, s: Any, w: np.ndarray) -> None:
        self.s, self.w = s, w
        self.m, self.v = np.zeros_like(w), np.zeros_like(w)

    def step(self, i: int, g: np.ndarray, t: int, scale: float) -> None:
        s = self.s
        g = g + s.l2 * self.w[i]
        self.m[i] = s.beta1 * self.m[i] + (1 - s.beta1) * g
        self.v[i] = s.beta2 * self.v[i] + (1 - s.beta2) * g**2
        rate = s.learning_rate * scale * np.sqrt(1 - s.beta2**t) / (1 - s.beta1**t)
        self.w[i] -= rate * self.m[i] / (np.sqrt(self.v[i]) + s.epsilon)


class Ftrl:
    def __init__(self, s: Any, w: np.ndarray) -> None:
        self.s, self.w = s, w
        self.n = np.full_like(w, s.initial_accumulator)
        # Any start of z whose weight is the initial one; solved from the formula, sign of w opposite to z.
        self.z = -w * ((s.beta + np.sqrt(self.n)) / s.learning_rate + s.l2) - np.sign(w) * s.l1

    def step(self, i: int, g: np.ndarray, t: int, scale: float) -> None:
        s, alpha = self.s, self.s.learning_rate * scale
        sigma = (np.sqrt(self.n[i] + g**2) - np.sqrt(self.n[i])) / alpha
        self.z[i] += g - sigma * self.w[i]
        self.n[i] += g**2
        dense = -(self.z[i] - np.sign(self.z[i]) * s.l1) / ((s.beta + np.sqrt(self.n[i])) / alpha + s.l2)
        self.w[i] = np.where(np.abs(self.z[i]) <= s.l1, 0.0, dense)


CASES: list[tuple[Any, type[Any]]] = [
    (SgdSettings(learning_rate=0.1, l2=0.02), Sgd),
    (AdagradSettings(learning_rate=0.1, l2=0.02, initial_accumulator=0.1), Adagrad),
    (AdagradSettings(learning_rate=0.05), Adagrad),
    (RowwiseAdagradSettings(learning_rate=0.1, l2=0.02, initial_accumulator=0.01), RowwiseAdagrad),
    (SgdSettings(learning_rate=0.1, l1=0.5), Sgd),
    (AdamSettings(learning_rate=0.01, l2=0.02), Adam),
    (AdamSettings(learning_rate=0.01, l1=0.3, l2=0.02), Adam),
    (AdamSettings(learning_rate=0.01, beta1=0.5, beta2=0.9, epsilon=1e-4), Adam),
    (FtrlSettings(learning_rate=0.1, beta=0.5, l1=0.3, l2=0.1, initial_accumulator=0.1), Ftrl),
    (FtrlSettings(learning_rate=0.05, l1=2.0, l2=0.0), Ftrl),
]
IDS = [f"{s.name}-{i}" for i, (s, _) in enumerate(CASES)]
FEASIGNS = np.array([0, 1, 2**64 - 1, 2**63, 77, 10**12], np.uint64)


def make_table(settings: Any, dim: int) -> Table:
    segment = SegmentSettings(name="w", dim=dim, optimizer=settings, initializer=NormalSettings(std=0.3))
    return Table(TableSettings(name="t", segments=(segment,), seed=5))


def run_steps(
    table: Table,
    steps: int,
    dim: int,
    first: int = 1,
    on_step: Callable[[int, dict[int, np.ndarray], float], None] | None = None,
) -> None:
    """Random multi-valued batches of two slots; calls on_step(t, occurrences (feasign index, gradient), scale)."""
    layout = table.layout([SlotTarget(0, {"w": 0}), SlotTarget(1, {"w": dim}, pooling="mean")])
    for t in range(first, first + steps):
        rng = np.random.default_rng(t)
        lengths = rng.integers(0, 4, size=2 * 8)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        # FEASIGNS[5] is left out of every other step: its moments must stand still.
        which = rng.integers(0, 6 if t % 2 else 5, size=offsets[-1])
        gradient = rng.normal(size=(8, 2 * dim)).astype(np.float32)
        scale = 1.0 if t % 3 else 0.5
        lookup = layout.lookup(FEASIGNS[which], offsets, 8)
        table.find(lookup, insert=True)
        table.push(lookup, layout, [gradient], rate_scale=scale)
        if on_step is not None:
            sums: dict[int, np.ndarray] = {}
            for bag in range(16):
                values = which[offsets[bag] : offsets[bag + 1]]
                g = gradient[bag % 8, :dim] if bag < 8 else gradient[bag % 8, dim:] / max(len(values), 1)
                for i in values:
                    sums[i] = sums.get(i, 0.0) + g.astype(np.float64)
            on_step(t, sums, scale)


def insert_all(table: Table) -> None:
    layout = table.layout([SlotTarget(0, {"w": 0})])
    lookup = layout.lookup(FEASIGNS, np.array([0, len(FEASIGNS)], np.int32), 1)
    table.find(lookup, insert=True)


@pytest.mark.parametrize("dim", [1, 3, 9, 16, 33])
@pytest.mark.parametrize(("settings", "formula"), CASES, ids=IDS)
def test_agrees_with_the_formula_in_float64(settings: Any, formula: type[Any], dim: int, tmp_path: Path) -> None:
    table = make_table(settings, dim)
    insert_all(table)
    reference = formula(settings, table.get(FEASIGNS).weights.astype(np.float64))

    def step(t: int, sums: dict[int, np.ndarray], scale: float) -> None:
        for i, g in sums.items():
            reference.step(i, g, t, scale)
            if formula is not Ftrl:  # the proximal step of L1
                shrunk = np.abs(reference.w[i]) - settings.learning_rate * scale * settings.l1
                reference.w[i] = np.sign(reference.w[i]) * np.maximum(shrunk, 0.0)

    def check() -> None:
        # float32 rounding of about 40 operations on values near 1; FTRL divides by the small numbers z hovers around.
        np.testing.assert_allclose(table.get(FEASIGNS).weights, reference.w, rtol=2e-5, atol=2e-5)

    run_steps(table, 8, dim, 1, step)
    check()
    table.save(tmp_path / "table")
    table = make_table(settings, dim)
    table.load(tmp_path / "table")
    run_steps(table, 12, dim, 9, step)
    check()
    if formula is Ftrl:
        assert np.array_equal(table.get(FEASIGNS).weights == 0, reference.w == 0)


@pytest.mark.parametrize(("settings", "formula"), CASES, ids=IDS)
def test_restored_steps_are_bit_for_bit_the_uninterrupted_ones(
    settings: Any, formula: type[Any], tmp_path: Path
) -> None:
    whole, first = make_table(settings, 9), make_table(settings, 9)
    run_steps(whole, 10, 9)
    run_steps(first, 5, 9)
    first.save(tmp_path / "table")
    second = make_table(settings, 9)
    second.load(tmp_path / "table")
    run_steps(second, 5, 9, 6)
    assert whole.get(FEASIGNS).weights.tobytes() == second.get(FEASIGNS).weights.tobytes()
    whole.save(tmp_path / "a")
    second.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    cases = [
        (SgdSettings(learning_rate=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (AdamSettings(learning_rate=0.01), lambda p: torch.optim.SparseAdam(p, lr=0.01)),
        (
            AdagradSettings(learning_rate=0.1, initial_accumulator=0.2),
            lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.2),
        ),
    ]
    for settings, make in cases:
        table = make_table(settings, 9)
        insert_all(table)
        start = torch.tensor(table.get(FEASIGNS).weights)
        embedding = torch.nn.Embedding.from_pretrained(start, freeze=False, sparse=True)
        optimizer = make(list(embedding.parameters()))

        def step(
            t: int, sums: dict[int, np.ndarray], scale: float, embedding: Any = embedding, optimizer: Any = optimizer
        ) -> None:
            indices = torch.tensor(sorted(sums))
            gradients = torch.tensor(np.array([sums[i] for i in sorted(sums)]), dtype=torch.float32)
            for group in optimizer.param_groups:
                group["lr"] *= scale
            embedding.weight.grad = torch.sparse_coo_tensor(
                indices[None], gradients, embedding.weight.shape, check_invariants=True
            )
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] /= scale

        run_steps(table, 10, 9, 1, step)
        expected = embedding.weight.detach().numpy()
        np.testing.assert_allclose(table.get(FEASIGNS).weights, expected, rtol=1e-5, atol=1e-6)


def test_clip_bound_and_gradient_scale() -> None:
    settings = SgdSettings(learning_rate=1.0, gradient_clip=0.5, weight_bound=0.75)
    table = Table(
        TableSettings(segments=(SegmentSettings(name="w", dim=2, optimizer=settings, initializer={"name": "zeros"}),))
    )
    layout = table.layout([SlotTarget(0, {"w": 0})])
    lookup = layout.lookup(np.array([9, 9], np.uint64), np.array([0, 1, 2], np.int32), 2)
    table.find(lookup, insert=True)
    gradient = np.array([[1.0, 0.1], [1.0, 0.1]], np.float32)
    table.push(lookup, layout, [gradient])
    np.testing.assert_allclose(table.get(np.array([9], np.uint64)).weights, [[-0.5, -0.2]], rtol=1e-6)
    table.push(lookup, layout, [gradient], gradient_scale=2.0)
    np.testing.assert_allclose(table.get(np.array([9], np.uint64)).weights, [[-0.75, -0.6]], rtol=1e-6)


def test_l1_leaves_exact_zeros_in_touched_rows_alone() -> None:
    table = make_table(SgdSettings(learning_rate=0.1, l1=1.0), 4)
    insert_all(table)
    before = table.get(FEASIGNS).weights
    layout = table.layout([SlotTarget(0, {"w": 0})])
    lookup = layout.lookup(FEASIGNS[:2], np.array([0, 2], np.int32), 1)
    for _ in range(30):
        table.find(lookup, insert=True)
        table.push(lookup, layout, [np.zeros((1, 4), np.float32)])
    after = table.get(FEASIGNS).weights
    assert (after[:2] == 0).all() and np.abs(before[:2]).min() > 0
    assert after[2:].tobytes() == before[2:].tobytes()
