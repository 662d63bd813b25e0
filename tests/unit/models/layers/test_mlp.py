"""Towers against float64 references, with every kernel set this CPU can run."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elasticctr import _native
from elasticctr.errors import ConfigError, FailedPrecondition
from elasticctr.models.layers import MLP, native_tower, set_native_towers, set_tower_precision

FP32_KERNELS = [name for name in _native.tower_kernels() if name.startswith("fp32")]
BF16_KERNELS = [name for name in _native.tower_kernels() if name.startswith("bf16")]

SHAPES = [
    (1, (1, 1)),
    (3, (7, 13, 1)),
    (1, (247, 33, 1)),
    (17, (33, 100, 7)),
    (100, (13, 32, 64, 33, 1)),
    (300, (40, 16)),
    (257, (247, 512, 256, 128, 32, 1)),
    (4097, (5, 31, 2)),
    (9000, (3, 17, 1)),
]


@pytest.fixture(autouse=True)
def _restore_switches() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # torch's spinning workers and the native pool would fight for the cores
    yield
    torch.set_num_threads(threads)
    set_native_towers(True)
    set_tower_precision("fp32")


class Problem:
    """Random parameters, input inside a wider matrix, and output gradient of one shape."""

    def __init__(self, rows: int, widths: tuple[int, ...], seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.widths = widths
        self.weights = [torch.randn(b, a, generator=g) / a**0.5 for a, b in itertools.pairwise(widths)]
        self.biases = [torch.randn(b, generator=g) * 0.3 for b in widths[1:]]
        self.wide = torch.randn(rows, widths[0] + 9, generator=g)
        self.dy = torch.randn(rows, widths[-1], generator=g)

    @property
    def x(self) -> Tensor:
        return self.wide[:, 4 : 4 + self.widths[0]]

    def native(self, kernels: str, relu_last: bool = False) -> list[Tensor]:
        """[y, dx, weight gradients..., bias gradients...]"""
        tower = native_tower.tower_for(self.widths, relu_last, "fp32", kernels)
        assert tower.kernels == kernels
        leaves = [t.clone().requires_grad_() for t in (self.wide, *self.weights, *self.biases)]
        layers = len(self.weights)
        x = leaves[0][:, 4 : 4 + self.widths[0]]
        y = native_tower.run_tower(tower, x, leaves[1 : 1 + layers], leaves[1 + layers :])
        y.backward(self.dy)
        wide_gradient = leaves[0].grad
        assert wide_gradient is not None
        assert not wide_gradient[:, :4].any() and not wide_gradient[:, 4 + self.widths[0] :].any()
        dx = wide_gradient[:, 4 : 4 + self.widths[0]]
        return [y.detach(), dx, *(leaf.grad for leaf in leaves[1:])]

    def reference(self, relu_last: bool = False, bf16: bool = False) -> list[np.ndarray]:
        """The same in float64; with bf16, everything a product reads is rounded to it first."""
        rounded = round_bf16 if bf16 else lambda a: a
        weights = [rounded(w.double().numpy()) for w in self.weights]
        acts = [rounded(self.x.double().numpy())]
        layers = len(weights)
        for i, (w, b) in enumerate(zip(weights, self.biases, strict=True)):
            y = acts[-1] @ w.T + b.double().numpy()
            if i + 1 < layers or relu_last:
                y = np.maximum(y, 0)
            acts.append(rounded(y) if i + 1 < layers else y)
        g = self.dy.double().numpy()
        if relu_last:
            g = g * (acts[-1] > 0)
        weight_gradients, bias_gradients = [], []
        for i in reversed(range(layers)):
            g = rounded(g)
            weight_gradients.append(g.T @ acts[i])
            bias_gradients.append(g.sum(0))
            g = g @ weights[i]
            if i > 0:
                g = g * (acts[i] > 0)
        return [acts[-1], g, *reversed(weight_gradients), *reversed(bias_gradients)]


def round_bf16(a: np.ndarray) -> np.ndarray:
    return torch.from_numpy(a).float().bfloat16().double().numpy()


def assert_close(actual: list[Tensor], expected: list[np.ndarray], tolerance: float) -> None:
    """Errors relative to the size of each whole tensor: single elements may be sums that cancel."""
    assert len(actual) == len(expected)
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape
        error = np.linalg.norm(a.double().numpy() - e) / (np.linalg.norm(e) + 1e-30)
        assert error < tolerance, f"tensor {index} of shape {e.shape} is off by {error:.2e}"


@pytest.mark.parametrize("relu_last", [False, True])
@pytest.mark.parametrize(("rows", "widths"), SHAPES)
@pytest.mark.parametrize("kernels", FP32_KERNELS)
def test_fp32_matches_float64(kernels: str, rows: int, widths: tuple[int, ...], relu_last: bool) -> None:
    problem = Problem(rows, widths)
    # Sums of up to 9000 float32 products: rounding grows with the square root of that, 6e-8 * 95 = 6e-6.
    assert_close(problem.native(kernels, relu_last), problem.reference(relu_last), 1e-5)


@pytest.mark.parametrize("relu_last", [False, True])
@pytest.mark.parametrize(("rows", "widths"), SHAPES)
@pytest.mark.parametrize("kernels", BF16_KERNELS)
def test_bf16_matches_rounded_float64(kernels: str, rows: int, widths: tuple[int, ...], relu_last: bool) -> None:
    problem = Problem(rows, widths)
    # Sums are float32; now and then one lands on the other side of a rounding boundary, 1 in 256 away. Rounding
    # everything wrongly (cutting off, say) would show as 2e-3 and more.
    assert_close(problem.native(kernels, relu_last), problem.reference(relu_last, bf16=True), 5e-4)


@pytest.mark.parametrize("kernels", BF16_KERNELS)
def test_shrinking_batches_leave_nothing_behind(kernels: str) -> None:
    """A workspace that held many rows is used for few: what pads them must be zero again."""
    for rows in (333, 45, 1):
        problem = Problem(rows, (19, 33, 1), seed=rows)
        assert_close(problem.native(kernels), problem.reference(bf16=True), 5e-4)


@pytest.mark.parametrize("kernels", FP32_KERNELS + BF16_KERNELS)
def test_threads_do_not_change_a_bit(kernels: str) -> None:
    problem = Problem(700, (247, 512, 64, 1))
    threads = _native.threads()
    try:
        _native.set_threads(1)
        one = problem.native(kernels)
        again = problem.native(kernels)
        _native.set_threads(3)
        three = problem.native(kernels)
    finally:
        _native.set_threads(threads)
    for a, b, c in zip(one, again, three, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_rows_do_not_depend_on_their_batch() -> None:
    problem = Problem(321, (20, 40, 1))
    tower = native_tower.tower_for(problem.widths, False, "fp32")
    whole = native_tower.run_tower(tower, problem.x, problem.weights, problem.biases)
    single = native_tower.run_tower(tower, problem.x[77:78], problem.weights, problem.biases)
    assert torch.equal(whole[77:78], single)


def test_bf16_is_a_training_matter() -> None:
    """Asked for by the switch or by autocast, used in training mode only, gradients float32 all the same."""
    if not BF16_KERNELS:
        pytest.skip("no bf16 on this CPU")
    torch.manual_seed(0)
    model, x = MLP(64, [64]), torch.randn(50, 64)
    exact = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = model(x)
    set_tower_precision("bf16")
    rounded = model(x)
    assert torch.equal(cast, rounded) and rounded.dtype == torch.float32
    error = ((rounded - exact).norm() / exact.norm()).item()
    assert error < 1e-2
    rounded.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert torch.equal(model.eval()(x), exact)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_module_trains_like_torch(precision: native_tower.Precision) -> None:
    losses = {}
    set_tower_precision(precision)
    for native in (True, False):
        set_native_towers(native)
        torch.manual_seed(3)
        model = MLP(20, [64, 32])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        x = torch.randn(256, 20)
        labels = ((x[:, 0] * x[:, 1] + x[:, 2]) > 0).float()
        curve = []
        for _ in range(200):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), labels)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses[native] = np.array(curve)
    assert losses[True][-1] < 0.05
    # Rounding differs, and Adam divides by small second moments: the curves stay within a few percent throughout.
    tolerance = 0.05 if precision == "fp32" else 0.2
    np.testing.assert_allclose(losses[True], losses[False], rtol=tolerance, atol=5e-3)


def test_module_state_is_plain_torch() -> None:
    model = MLP(6, [5, 4], 3)
    names = [f"linears.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")]
    assert list(model.state_dict()) == names
    assert copy.deepcopy(model)(torch.ones(2, 6)).shape == (2, 3)
    torch.save(model, buffer := io.BytesIO())
    assert buffer.getbuffer().nbytes > 0


@pytest.mark.parametrize("options", [{}, {"batch_norm": True, "dropout": 0.5}])
def test_onnx_export_is_plain_and_equal(tmp_path: Path, options: dict[str, Any]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = MLP(13, [32, 8], 2, **options)
    model(torch.randn(50, 13) + 1)  # so that running statistics are not the initial ones
    model.eval()
    path = tmp_path / "mlp.onnx"
    torch.onnx.export(
        model, (torch.zeros(2, 13),), path, dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = torch.randn(37, 13)
    (exported,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(exported, model(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_compiled_module_gives_the_same() -> None:
    model = MLP(13, [32])
    x = torch.randn(10, 13)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_initial_values() -> None:
    torch.manual_seed(0)
    model: Any = MLP(400, [900])
    assert model.linears[0].weight.std().item() == pytest.approx(1 / 20, rel=0.01)
    assert not model.linears[0].bias.any()


@pytest.mark.parametrize(
    "options", [{"dropout": 0.5}, {"batch_norm": True}, {"activation": "gelu"}, {"out_features": None}]
)
def test_other_shapes_of_mlp_work(options: dict[str, object]) -> None:
    model = MLP(8, [16, 4], **options)  # type: ignore[arg-type]
    x = torch.randn(32, 8, requires_grad=True)
    y = model(x)
    assert y.shape == (32, 4 if "out_features" in options else 1)
    y.sum().backward()
    assert x.grad is not None
    model.eval()
    with torch.no_grad():
        native = model(x)
        set_native_towers(False)
        torch.testing.assert_close(native, model(x), rtol=1e-5, atol=1e-6)


def test_no_grad_keeps_nothing_and_eval_is_float32() -> None:
    model = MLP(8, [16])
    set_tower_precision("bf16")
    x = torch.randn(5, 8)
    with torch.no_grad():
        model.eval()
        exact = model(x)
    set_native_towers(False)
    torch.testing.assert_close(exact, model(x).detach(), rtol=1e-5, atol=1e-6)
    assert not exact.requires_grad


def test_two_forwards_before_a_backward() -> None:
    model = MLP(8, [16, 16])
    first, second = torch.randn(5, 8, requires_grad=True), torch.randn(9, 8, requires_grad=True)
    a, b = model(first), model(second)
    (a.sum() + 2 * b.sum()).backward()
    grads = [p.grad.clone() for p in model.parameters()] + [first.grad, second.grad]  # type: ignore[union-attr]
    set_native_towers(False)
    model.zero_grad()
    first.grad = second.grad = None
    (model(first).sum() + 2 * model(second).sum()).backward()
    for native, plain in zip(grads, [*(p.grad for p in model.parameters()), first.grad, second.grad], strict=True):
        torch.testing.assert_close(native, plain, rtol=1e-4, atol=1e-5)


def test_second_backward_is_refused() -> None:
    y = MLP(3, [4])(torch.ones(2, 3, requires_grad=True)).sum()
    y.backward(retain_graph=True)
    with pytest.raises(FailedPrecondition, match="set_native_towers"):
        y.backward()


def test_double_backward_is_refused() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(FailedPrecondition, match="create_graph"):
        torch.autograd.grad(MLP(3, [4])(x).sum(), x, create_graph=True)


def test_weight_changed_before_backward_is_noticed() -> None:
    model: Any = MLP(3, [4])
    y = model(torch.ones(2, 3)).sum()
    with torch.no_grad():
        model.linears[0].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_frozen_parameters_and_empty_batches() -> None:
    model = MLP(3, [4])
    model.linears[0].weight.requires_grad_(False)
    model(torch.ones(2, 3)).sum().backward()
    assert model.linears[0].weight.grad is None
    assert model.linears[1].weight.grad is not None
    x = torch.empty(0, 3, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_not_a_number_stays_one(precision: native_tower.Precision) -> None:
    set_tower_precision(precision)
    x = torch.ones(3, 4)
    x[1, 2] = float("nan")
    y = MLP(4, [8, 8])(x)
    assert torch.isnan(y[1]).all() and not torch.isnan(y[[0, 2]]).any()


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="activation"):
        MLP(3, [4], activation="rleu")
    with pytest.raises(ConfigError, match="at least 1 wide"):
        MLP(3, [0])
    with pytest.raises(ConfigError, match="dropout"):
        MLP(3, [4], dropout=1.5)
    with pytest.raises(ConfigError, match="fp32"):
        set_tower_precision("fp16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fp32_portable"):
        _native.Tower([3, 4], False, "fp32", "fp32_abacus")
