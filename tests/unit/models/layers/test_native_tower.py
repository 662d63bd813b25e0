"""Batch norm and dropout of native towers against float64, with every kernel set this CPU can run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elasticctr import _native
from elasticctr.models.layers import MLP, native_tower, set_native_towers, set_tower_precision
from elasticctr.models.layers.norms import BatchNorm

KERNELS = _native.tower_kernels()
BF16_KERNELS = [name for name in KERNELS if name.startswith("bf16")]
SHAPES = [(3, (7, 13, 1)), (67, (33, 100, 31, 5)), (1100, (9, 33, 2))]


@pytest.fixture(autouse=True)
def _restore_switches() -> Iterator[None]:
    threads, native_threads = torch.get_num_threads(), _native.threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    _native.set_threads(native_threads)
    set_native_towers(True)
    set_tower_precision("fp32")


class Problem:
    """Random parameters, norms, input and output gradient of one shape, and what a native tower makes of them."""

    def __init__(self, rows: int, widths: tuple[int, ...], relu_last: bool, norms: bool, dropout: float) -> None:
        g = torch.Generator().manual_seed(rows)
        self.rows, self.widths, self.relu_last, self.dropout = rows, widths, relu_last, dropout
        self.weights = [torch.randn(b, a, generator=g) / a**0.5 for a, b in itertools.pairwise(widths)]
        self.biases = [torch.randn(b, generator=g) * 0.3 for b in widths[1:]]
        self.relus = len(self.weights) - (not relu_last)
        self.x = torch.randn(rows, widths[0], generator=g) + 1
        self.dy = torch.randn(rows, widths[-1], generator=g)
        self.norms = [self.make_norm(width, g) for width in widths[1 : 1 + self.relus]] if norms else []

    @staticmethod
    def make_norm(width: int, g: torch.Generator) -> BatchNorm:
        norm = BatchNorm(width)
        with torch.no_grad():
            norm.weight.copy_(torch.randn(width, generator=g))  # of both signs
            norm.bias.copy_(torch.randn(width, generator=g))
            norm.running_mean.copy_(torch.randn(width, generator=g))  # type: ignore[union-attr]
            norm.running_var.copy_(torch.rand(width, generator=g) + 0.5)  # type: ignore[union-attr]
        return norm

    def native(self, kernels: str, is_training: bool = True) -> dict[str, Tensor]:
        """Everything a step writes, by name."""
        tower = native_tower.tower_for(self.widths, self.relu_last, "fp32", kernels)
        norms = copy.deepcopy(self.norms)
        x, *parameters = [t.clone().requires_grad_() for t in (self.x, *self.weights, *self.biases)]
        layers = len(self.weights)
        torch.manual_seed(5)
        hidden = native_tower.Hidden(norms, is_training, self.dropout)
        y = native_tower.run_tower(tower, x, parameters[:layers], parameters[layers:], hidden)
        y.backward(self.dy)
        found = {"y": y.detach(), "dx": x.grad}
        for i in range(layers):
            found |= {f"weight {i}": parameters[i].grad, f"bias {i}": parameters[layers + i].grad}
        for i, norm in enumerate(norms):
            found |= {f"scale {i}": norm.weight.grad, f"shift {i}": norm.bias.grad}
            found |= {f"mean {i}": norm.running_mean, f"variance {i}": norm.running_var}
        return found

    def first_layers(self, count: int) -> Problem:
        """The tower that ends with the ReLU of layer `count` - 1: what it gives is what the whole one has there."""
        part = copy.copy(self)
        part.widths, part.relu_last, part.relus = self.widths[: count + 1], True, count
        part.weights, part.biases, part.norms = self.weights[:count], self.biases[:count], self.norms[:count]
        part.dy = torch.zeros(self.rows, part.widths[-1])
        return part

    def reference(self, kernels: str, is_training: bool = True) -> dict[str, np.ndarray]:
        """The same in float64. Which values pass the ReLU and the dropout is taken from the tower itself: one that is
        nearly 0 may pass or not. In bf16, what is stored is rounded first.
        """
        is_bf16 = kernels in BF16_KERNELS
        rounded = round_bf16 if is_bf16 else lambda a: a
        weights = [rounded(w.double().numpy()) for w in self.weights]
        acts, passes, normals, slopes = [rounded(self.x.double().numpy())], [], [], []
        found: dict[str, np.ndarray] = {}
        uses_batch = is_training and self.rows > 1
        # Of 65,536 values a whole number is dropped.
        kept = 1 - round(self.dropout * 65536) / 65536
        for i, (w, b) in enumerate(zip(weights, self.biases, strict=True)):
            z = acts[-1] @ w.T + b.double().numpy()
            if i < len(self.norms):
                norm, z = self.norms[i], rounded(z)
                mean, variance = norm.running_mean.double().numpy(), norm.running_var.double().numpy()  # type: ignore[union-attr]
                if uses_batch:
                    old_mean, old_variance = mean, variance
                    mean, variance = z.mean(0), z.var(0)
                    found[f"mean {i}"] = 0.9 * old_mean + 0.1 * mean
                    found[f"variance {i}"] = 0.9 * old_variance + 0.1 * z.var(0, ddof=1)
                else:
                    found |= {f"mean {i}": mean, f"variance {i}": variance}
                normals.append((z - mean) / np.sqrt(variance + norm.eps))
                slopes.append(norm.weight.detach().double().numpy() / np.sqrt(variance + norm.eps))
                z = normals[-1] * norm.weight.detach().double().numpy() + norm.bias.detach().double().numpy()
            if i < self.relus:
                seen = self.first_layers(i + 1).native(kernels, is_training)["y"].double().numpy()
                # Nothing passes that should not, and whatever does not pass was dropped or is not positive.
                assert ((seen > 0) <= (z > -1e-2 * np.abs(z).max())).all()
                if self.dropout == 0:
                    assert ((seen > 0) >= (z > 1e-2 * np.abs(z).max())).all()
                passes.append((seen > 0) / kept)
                z = z * passes[-1]
            acts.append(rounded(z) if i + 1 < len(weights) else z)
        found["y"] = acts[-1]
        g = self.dy.double().numpy()
        for i in reversed(range(len(weights))):
            if i < self.relus:
                g = rounded(g * passes[i])
            if i < len(self.norms):
                found |= {f"scale {i}": (g * normals[i]).sum(0), f"shift {i}": g.sum(0)}
                if uses_batch:
                    g = g - g.mean(0) - normals[i] * (g * normals[i]).mean(0)
                g = g * slopes[i]
            g = rounded(g)
            found |= {f"weight {i}": g.T @ acts[i], f"bias {i}": g.sum(0)}
            if i < len(self.norms) and uses_batch:
                found[f"bias {i}"] = np.zeros(self.widths[i + 1])
            g = g @ weights[i]
        found["dx"] = g
        return found


def round_bf16(a: np.ndarray) -> np.ndarray:
    return torch.from_numpy(a).float().bfloat16().double().numpy()


def assert_close(actual: dict[str, Tensor], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """Errors relative to the size of each whole tensor: single elements may be sums that cancel."""
    assert actual.keys() == expected.keys()
    for name, e in expected.items():
        a = actual[name].double().numpy()
        assert a.shape == e.shape
        error = np.linalg.norm(a - e) / (np.linalg.norm(e) + 1e-30) if e.any() else np.abs(a).max()
        assert error < tolerance, f"{name} of shape {e.shape} is off by {error:.2e}"


@pytest.mark.parametrize("relu_last", [False, True])
@pytest.mark.parametrize(("norms", "dropout"), [(True, 0.0), (False, 0.3), (True, 0.3)])
@pytest.mark.parametrize(("rows", "widths"), SHAPES)
@pytest.mark.parametrize("kernels", KERNELS)
def test_training_matches_float64(
    kernels: str, rows: int, widths: tuple[int, ...], norms: bool, dropout: float, relu_last: bool
) -> None:
    problem = Problem(rows, widths, relu_last, norms, dropout)
    # Norms divide by deviations: with three rows of nearly one value that makes much of rounding. In bf16 what is
    # summed differs by a rounding step now and then, and three layers of norms pass that on.
    tolerance = (1e-3 if rows == 3 else 2e-5) if kernels not in BF16_KERNELS else (0.1 if rows == 3 else 1e-2)
    assert_close(problem.native(kernels), problem.reference(kernels), tolerance)


@pytest.mark.parametrize(("rows", "is_training"), [(1, True), (1, False), (67, False)])
@pytest.mark.parametrize("relu_last", [False, True])
@pytest.mark.parametrize("kernels", KERNELS)
def test_running_statistics_are_used_and_stay(kernels: str, relu_last: bool, rows: int, is_training: bool) -> None:
    """In evaluation, and for a batch of one sample, which has no variance."""
    problem = Problem(rows, (33, 100, 31, 5), relu_last, True, 0.0)
    tolerance = 1e-2 if kernels in BF16_KERNELS else 1e-5
    assert_close(problem.native(kernels, is_training), problem.reference(kernels, is_training), tolerance)


@pytest.mark.parametrize("kernels", KERNELS)
def test_threads_do_not_change_a_bit(kernels: str) -> None:
    problem = Problem(700, (100, 130, 64, 1), False, True, 0.2)
    results = []
    for threads in (1, 2, 5):
        _native.set_threads(threads)
        results.append(problem.native(kernels))
    for other in results[1:]:
        assert all(torch.equal(other[name], value) for name, value in results[0].items())


@pytest.mark.parametrize("kernels", BF16_KERNELS)
def test_shrinking_batches_leave_nothing_behind(kernels: str) -> None:
    for rows in (333, 45, 2, 1):
        problem = Problem(rows, (19, 33, 20, 1), False, True, 0.2)
        found = problem.native(kernels)
        native_tower.tower_for.cache_clear()  # another tower, with memory of its own
        fresh = problem.native(kernels)
        assert all(torch.equal(found[name], value) for name, value in fresh.items())


def assert_modules_agree(model: MLP, x: Tensor, tolerance: float = 1e-4) -> None:
    """`model` run natively and as float64 by torch: outputs, gradients and buffers."""
    model.zero_grad()
    exact = copy.deepcopy(model).double()
    x, exact_x = x.clone().requires_grad_(), x.double().requires_grad_()
    found, expected = model(x), exact(exact_x)
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    found.square().sum().backward()
    expected.square().sum().backward()
    pairs = zip([x, *model.parameters()], [exact_x, *exact.parameters()], strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=tolerance, atol=tolerance * 10)  # type: ignore[union-attr]
    for a, b in zip(model.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [0, 1, 2, 50])
@pytest.mark.parametrize("is_training", [True, False])
def test_module_with_norms_is_torchs_own(rows: int, is_training: bool) -> None:
    torch.manual_seed(1)
    model = MLP(6, [8, 4], batch_norm=True).train(is_training)
    for _ in range(2):  # the second time with statistics that are not the initial ones
        assert_modules_agree(model, torch.randn(rows, 6) * 3 + 2)
    seen = 2 if is_training and rows > 1 else 0
    assert [int(norm.num_batches_tracked) for norm in model.norms] == [seen, seen]  # type: ignore[union-attr, arg-type]


def test_statistics_move_without_gradients_too() -> None:
    model, x = MLP(3, [4], batch_norm=True), torch.randn(20, 3)
    other = copy.deepcopy(model)
    with torch.no_grad():
        found = model(x)
    assert torch.equal(found, other(x).detach())
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), other.buffers(), strict=True))
    assert model.norms[0].running_mean.any()  # type: ignore[index, operator]


def test_norms_in_another_mode_than_their_tower_are_left_to_torch() -> None:
    model = MLP(3, [4], batch_norm=True)
    assert model.has_native_form()
    model.norms[0].eval()  # type: ignore[index]
    assert not model.has_native_form()
    assert_modules_agree(model, torch.randn(20, 3))


def test_large_means_cost_no_precision() -> None:
    torch.manual_seed(0)
    model = MLP(5, [16], batch_norm=True)
    with torch.no_grad():
        model.linears[0].bias.fill_(300.0)  # type: ignore[operator]
    assert_modules_agree(model, torch.randn(500, 5), 1e-3)


def drop(rows: int, width: int, dropout: float, seed: int = 0, layers: int = 1) -> Tensor:
    """What a tower of `layers` whose values all are 1 before each dropout gives."""
    model = MLP(1, [width] * layers, None, dropout)
    with torch.no_grad():
        for linear in model.layers():
            linear.weight.zero_()
            linear.bias.fill_(1.0)
    torch.manual_seed(seed)
    return model(torch.zeros(rows, 1)).detach()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_and_the_expected_value(share: float) -> None:
    y = drop(4000, 100, share)
    kept = y > 0
    # Five standard deviations of a share of 400,000, of 4,000 and of 100.
    deviation = (share * (1 - share)) ** 0.5
    assert abs(kept.float().mean() - (1 - share)) < 5 * deviation / 400_000**0.5
    assert (kept.float().mean(0) - (1 - share)).abs().max() < 5 * deviation / 4000**0.5
    assert (kept.float().mean(1) - (1 - share)).abs().max() < 6 * deviation / 100**0.5
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - share)), rtol=1e-4, atol=0)
    # Neighbours, in a row and in a column, know nothing of each other.
    for a, b in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1]), (kept[:, :16], kept[:, 16:32])):
        both = (a & b).float().mean().item()
        assert both == pytest.approx((1 - share) ** 2, abs=5 * deviation / a.numel() ** 0.5)


def test_dropout_is_decided_by_torchs_random_numbers() -> None:
    first = drop(64, 40, 0.5, seed=1)
    assert torch.equal(first, drop(64, 40, 0.5, seed=1))
    assert 0.4 < (first != drop(64, 40, 0.5, seed=2)).float().mean() < 0.6
    model, x = MLP(4, [50], dropout=0.5), torch.randn(8, 4)
    a, state = model(x), torch.get_rng_state()
    b = model(x)
    assert not torch.equal(a, b), "each step drops others"
    torch.set_rng_state(state)
    assert torch.equal(b, model(x))


def test_dropout_of_a_sample_does_not_depend_on_kernels() -> None:
    masks = []
    for kernels in KERNELS:
        problem = Problem(50, (4, 70), True, False, 0.5)
        problem.weights, problem.biases = [torch.zeros(70, 4)], [torch.ones(70)]
        masks.append(problem.native(kernels)["y"] > 0)
    assert all(torch.equal(mask, masks[0]) for mask in masks)


def test_layers_drop_different_units() -> None:
    both = (drop(200, 64, 0.5, layers=2) > 0) == (drop(200, 64, 0.5, layers=1) > 0)
    assert 0.45 < both.float().mean() < 0.55


def test_evaluation_drops_nothing_and_draws_nothing() -> None:
    model, x = MLP(4, [50], dropout=0.5).eval(), torch.randn(8, 4)
    state = torch.get_rng_state()
    found = model(x)
    assert torch.equal(torch.get_rng_state(), state)
    set_native_towers(False)
    torch.testing.assert_close(found, model(x))


@pytest.mark.parametrize("batch_norm", [False, True])
def test_gradient_is_the_slope_of_what_the_seed_decided(batch_norm: bool) -> None:
    torch.manual_seed(0)
    model = MLP(12, [64, 32], dropout=0.3, batch_norm=batch_norm)
    x = torch.randn(200, 12)

    def score(x: Tensor) -> Tensor:
        torch.manual_seed(9)
        return model(x).square().mean()

    leaf = x.clone().requires_grad_()
    score(leaf).backward()
    assert leaf.grad is not None
    direction = leaf.grad / leaf.grad.std()
    slope, step = (leaf.grad * direction).sum().item(), 1e-3
    with torch.no_grad():
        measured = (score(x + step * direction) - score(x - step * direction)).item() / (2 * step)
    assert slope == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_module_trains_like_torch(precision: native_tower.Precision) -> None:
    set_tower_precision(precision)
    curves = {}
    for native in (True, False):
        set_native_towers(native)
        torch.manual_seed(3)
        model = MLP(20, [64, 32], batch_norm=True, dropout=0.1)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        x = torch.randn(512, 20)
        labels = ((x[:, 0] * x[:, 1] + x[:, 2]) > 0).float()
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), labels).backward()
            optimizer.step()
        with torch.no_grad():
            scores = model.eval()(x).squeeze(1)
        curves[native] = nn.functional.binary_cross_entropy_with_logits(scores, labels).item()
    # Other units are dropped, so the way is another; where it leads is not.
    assert curves[True] < 0.05 and curves[False] < 0.05


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_not_a_number_is_seen(precision: native_tower.Precision) -> None:
    set_tower_precision(precision)
    x = torch.ones(40, 4)
    x[1, 2] = float("nan")
    assert torch.isnan(MLP(4, [8, 8], batch_norm=True)(x)).all()
