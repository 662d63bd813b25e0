"""Small inputs with every kind of slot, float64 twins of them, and a tiny trainer with embeddings of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elasticctr.models import Inputs, InputSpec, Model, Sequence, SequenceSpec, create, input_needs, parse, resolve


def spec_for(
    model: str | type[Model],
    settings: dict[str, Any] | None = None,
    slots: tuple[str, ...] = ("ad", "user", "hour"),
    dims: tuple[int, ...] | None = None,
    dense_dim: int = 2,
    sequences: bool = False,
    labels: int = 1,
) -> InputSpec:
    """The spec a trainer would make: the model's needs laid over the slots."""
    cls = resolve(model)
    needs = input_needs(cls, parse(cls, settings))
    dims = dims or tuple(0 if slot in (needs.linear_only or ()) else needs.dim for slot in slots)
    fields = sum(dim > 0 for dim in dims) + (2 if sequences else 0)
    vectors = needs.vectors(fields, dense_dim)
    width = vectors * needs.dim
    return InputSpec(
        slots=slots,
        dims=tuple(vectors * dim for dim in dims),
        dense_dim=dense_dim,
        linear=needs.linear,
        sequences=(SequenceSpec("history", width, 4), SequenceSpec("query", width, 2)) if sequences else (),
        labels=labels,
    )


def random_inputs(spec: InputSpec, batch: int = 5, seed: int = 0, dtype: torch.dtype = torch.float32) -> Inputs:
    """Sequences have garbage past their ends, which a model must not read; the first sample has empty ones."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.randn(batch, spec.width, generator=generator, dtype=dtype)
    sequences = {}
    for s in spec.sequences:
        values = torch.randn(batch, s.max_values, s.dim, generator=generator, dtype=dtype)
        lengths = torch.randint(0, s.max_values + 1, (batch,), generator=generator)
        lengths[:1] = 0
        sequences[s.name] = Sequence(values, lengths)
    return Inputs(spec, flat, sequences)


def randomize(model: Model, seed: int = 7) -> Any:
    """Parameters away from their initial zeros, in float64. Any, since a submodule is `Tensor | Module` to mypy."""
    generator = torch.Generator().manual_seed(seed)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def check_gradients(model: Model, inputs: Inputs) -> bool:
    """Analytic against numeric gradients, of pooled columns, of sequences and of every parameter, along random
    directions. Dense columns are data; models need not have a gradient for them.
    """
    names = [name for name, _ in model.named_parameters()]
    keys = list(inputs.sequences)
    parameters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    pooled, dense = inputs.flat.split([inputs.spec.pooled_width, inputs.spec.dense_dim], dim=1)
    tensors = [pooled.clone().requires_grad_()]
    tensors += [inputs.sequences[k].values.clone().requires_grad_() for k in keys]

    def function(pooled: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        sequences = {k: Sequence(v, inputs.sequences[k].lengths) for k, v in zip(keys, rest, strict=False)}
        state = dict(zip(names, rest[len(keys) :], strict=True))
        flat = torch.cat([pooled, dense], dim=1)
        return torch.func.functional_call(model, state, (Inputs(inputs.spec, flat, sequences),))

    return torch.autograd.gradcheck(function, (*tensors, *parameters), fast_mode=True)


def learn_xor(model_name: str, settings: dict[str, Any], steps: int = 150) -> NDArray[np.bool_]:
    """Trains on label = (a differs from b) from two slots of two values each; which of the four are right."""
    spec = spec_for(model_name, settings, slots=("a", "b"), dense_dim=0)
    model = create(model_name, spec, settings, seed=1)
    generator = torch.Generator().manual_seed(3)
    k = spec.dims[0]
    embeddings = (0.3 * torch.randn(2, 2, max(k, 1), generator=generator))[:, :, :k].requires_grad_()
    linear = torch.zeros(2, 2, requires_grad=True)
    cases = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    labels = (cases[:, 0] != cases[:, 1]).float()
    optimizer = torch.optim.Adam([*model.parameters(), embeddings, linear], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(_lookup(spec, embeddings, linear, cases))
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()
    logits = model(_lookup(spec, embeddings, linear, cases)).detach()
    return ((logits > 0) == (labels > 0)).numpy()


def _lookup(spec: InputSpec, embeddings: torch.Tensor, linear: torch.Tensor, cases: torch.Tensor) -> Inputs:
    parts = [linear[[0, 1], cases]] if spec.linear else []
    parts += [embeddings[s, cases[:, s]] for s in range(2)]
    return Inputs(spec, torch.cat(parts, dim=1))


class Kit:
    """What the tests of a model share."""

    spec_for = staticmethod(spec_for)
    random_inputs = staticmethod(random_inputs)
    randomize = staticmethod(randomize)
    check_gradients = staticmethod(check_gradients)
    learn_xor = staticmethod(learn_xor)

    @staticmethod
    def feeds(inputs: Inputs) -> dict[str, NDArray[Any]]:
        """What an exported graph is given."""
        spec = inputs.spec
        arrays = {"pooled": inputs.flat[:, : spec.pooled_width].numpy(), "dense": inputs.dense.numpy()}
        for name, sequence in inputs.sequences.items():
            arrays |= {f"seq_{name}": sequence.values.numpy(), f"seq_{name}_lengths": sequence.lengths.numpy()}
        return {name: array for name, array in arrays.items() if array.ndim == 1 or array.shape[1] > 0}

    @staticmethod
    def numpy_mlp(model: torch.nn.Module, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Linear layers with relu between them, in numpy."""
        layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
        for i, layer in enumerate(layers):
            x = x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
            if i + 1 < len(layers):
                x = np.maximum(x, 0)
        return x

    @staticmethod
    def numpy_mean(sequence: Sequence) -> NDArray[np.float64]:
        values, lengths = sequence.values.numpy(), sequence.lengths.numpy()
        rows = [values[i, :n].mean(axis=0) if n else np.zeros(values.shape[2]) for i, n in enumerate(lengths)]
        return np.stack(rows)


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()
