"""The contract that every model of the registry fulfils.

A model is tried with the slots of `spec_for` (three pooled slots, two sequences, two dense floats), a small tower if it
has one, and one and three labels. One that needs something else says so in CASES, and nowhere else. A case may be of
another name than its model's: the model once more, with other settings. Defaults are tried by themselves, at the end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from tests.unit.models.conftest import Kit

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Schema
from elasticctr.models import MODELS, Loss, LossSettings, Model, create, export_onnx
from elasticctr.models.initialize import seeded
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch


@dataclass(frozen=True)
class Case:
    settings: dict[str, Any] = field(default_factory=dict)  # over the small defaults
    model: str | None = None  # if the case has another name
    has_sequences: bool = True
    labels: tuple[int, ...] = (1, 3)  # numbers of labels to try; the first one is trained with
    has_pairs: bool = True  # learns more than sums of features: is given a problem with an interaction
    unused: tuple[str, ...] = ()  # first words of parameters that may stay without a gradient
    mixes_batch: bool = False  # has batch norm: only when it serves are samples strangers to each other
    is_exported_quickly: bool = False  # its export is tried in the quick suite too


HISTORY = {"attention": [{"sequence": "history", "target": "ad"}]}

CASES: dict[str, Case] = {
    "autoint autodis": Case({"dense_fields": "autodis"}, model="autoint"),
    "bst": Case({**HISTORY, "head_dim": 4, "feed_forward": 8}),
    "dien": Case(HISTORY),
    "din": Case({**HISTORY, "attention_hidden": [16]}),
    # Products of small numbers vanish without batch norm.
    "edcn": Case({"batch_norm": False, "bridge": "sum"}),
    "edcn batch_norm": Case(model="edcn", mixes_batch=True),
    "ffm": Case(labels=(1,)),
    "fm": Case(labels=(1,)),
    "fwfm": Case(labels=(1,)),
    "fwfm autodis": Case({"dense_fields": "autodis"}, labels=(1,), model="fwfm"),
    "lr": Case(has_sequences=False, labels=(1,), has_pairs=False),
    "mmoe": Case({"head_hidden": [8], "experts": 3}, labels=(2, 1)),
    "ple": Case({"head_hidden": [8]}, labels=(2, 1)),
    "shared_bottom": Case({"head_hidden": [8]}, labels=(2, 1)),
    "sim": Case({**HISTORY, "k": 3, "head_dim": 4}),
    "xdeepfm autodis": Case({"dense_fields": "autodis"}, model="xdeepfm"),
}
NAMES = sorted({*MODELS, *CASES})


def model_of(name: str) -> str:
    return (CASES[name].model if name in CASES else None) or name


def case_of(name: str) -> Case:
    needed = MODELS[model_of(name)].labels_needed
    return CASES.get(name) or (Case(labels=(needed,)) if needed else Case())


def settings_of(name: str) -> dict[str, Any]:
    fields = MODELS[model_of(name)].settings_class.model_fields
    small = ({"dim": 4} if name != "lr" else {}) | ({"hidden": [16, 8]} if "hidden" in fields else {})
    return small | case_of(name).settings


def make(kit: Any, name: str, labels: int | None = None, seed: int = 3) -> Model:
    case, settings = case_of(name), settings_of(name)
    spec = kit.spec_for(model_of(name), settings, sequences=case.has_sequences, labels=labels or case.labels[0])
    return create(model_of(name), spec, settings, seed=seed)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def made(name: str, kit: Kit) -> Model:
    return make(kit, name)


@pytest.mark.parametrize("batch", [0, 1, 33])
@pytest.mark.parametrize(
    ("name", "labels"), [pytest.param(n, count, id=f"{n}-{count}") for n in NAMES for count in case_of(n).labels]
)
def test_one_logit_per_sample_and_label(kit: Kit, name: str, labels: int, batch: int) -> None:
    model = make(kit, name, labels)
    inputs = kit.random_inputs(model.spec, batch)
    inputs.flat.requires_grad_()
    logits = model.eval()(inputs)
    assert logits.shape == ((batch,) if labels == 1 else (batch, labels))
    logits.sum().backward()
    assert inputs.flat.grad is not None
    assert inputs.flat.grad.shape == inputs.flat.shape


def test_a_sample_does_not_see_its_neighbours(kit: Kit, name: str, made: Model) -> None:
    made = made.double().train(not case_of(name).mixes_batch)
    inputs = kit.random_inputs(made.spec, 6, dtype=torch.float64)
    all_of_them = made(inputs)
    alone = kit.random_inputs(made.spec, 6, dtype=torch.float64)
    alone.flat[:3] = 100.0
    for sequence in alone.sequences.values():
        sequence.values[:3] = 100.0
    torch.testing.assert_close(made(alone)[3:], all_of_them[3:], rtol=1e-12, atol=1e-12)


def test_every_column_and_every_parameter_gets_a_gradient(kit: Kit, name: str, made: Model) -> None:
    kit.randomize(made).float()
    inputs = kit.random_inputs(made.spec, 64)
    inputs.flat.requires_grad_()
    for sequence in inputs.sequences.values():
        sequence.values.requires_grad_()
    logits = made(inputs)
    labels = (torch.arange(logits.numel()) % 2).reshape(logits.shape)
    Loss(LossSettings())(logits, labels).backward()
    assert inputs.flat.grad is not None
    pooled = inputs.flat.grad[:, : made.spec.pooled_width]
    assert (pooled.abs().sum(dim=0) > 0).all(), "a slot is left out"
    for slot, sequence in inputs.sequences.items():
        assert sequence.values.grad is not None, f"sequence {slot} is left out"
        assert sequence.values.grad.abs().sum() > 0
    for key, parameter in made.named_parameters():
        if not key.startswith(case_of(name).unused or ("-",)):
            assert parameter.grad is not None, f"{key} takes no part"
            assert parameter.grad.abs().sum() > 0, key


def test_dense_floats_have_a_gradient_where_nothing_is_trained(kit: Kit, made: Model) -> None:
    """Explanations read it."""
    kit.randomize(made).float().eval()
    inputs = kit.random_inputs(made.spec, 16)
    inputs.flat.requires_grad_()
    made(inputs).sum().backward()
    assert inputs.flat.grad is not None
    assert (inputs.flat.grad[:, made.spec.pooled_width :].abs().sum(dim=0) > 0).all(), "a dense float is left out"


def test_what_stands_past_the_end_of_a_sequence_has_no_influence(kit: Kit, made: Model) -> None:
    made.eval()
    logits, gradients = list[torch.Tensor](), list[dict[str, Any]]()
    for garbage in (0.0, 1e6):
        inputs = kit.random_inputs(made.spec, 33)  # the first sample has empty sequences
        for sequence in inputs.sequences.values():
            sequence.values.masked_fill_(~sequence.mask().unsqueeze(2), garbage)
            sequence.values.requires_grad_()
        logits.append(made(inputs))
        logits[-1].square().sum().backward()
        gradients.append({slot: sequence.values.grad for slot, sequence in inputs.sequences.items()})
        for slot, sequence in inputs.sequences.items():
            assert gradients[-1][slot][~sequence.mask()].eq(0).all(), "padding has a gradient"
    assert logits[0].isfinite().all()
    assert torch.equal(logits[0], logits[1])
    assert all(torch.equal(gradients[0][slot], gradients[1][slot]) for slot in gradients[0])


def test_parameters_depend_on_the_seed_and_on_nothing_else(kit: Kit, name: str) -> None:
    first = make(kit, name, seed=5)
    with seeded(11):
        drawn = torch.rand(1)
    with seeded(11):
        again = make(kit, name, seed=5)
        assert torch.equal(torch.rand(1), drawn), "making a model moved the global generator"
    states = (first.state_dict(), again.state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    other = make(kit, name, seed=6).state_dict()
    is_random = any(value.is_floating_point() and value.dim() > 1 and value.std() > 0 for value in other.values())
    assert is_random != all(torch.equal(states[0][key], other[key]) for key in other)


@pytest.mark.filterwarnings("ignore:TF32")
def test_bfloat16_autocast(kit: Kit, made: Model) -> None:
    made.eval()
    inputs = kit.random_inputs(made.spec, 64)
    inputs.flat.requires_grad_()
    exact = made(inputs)
    # Not oneDNN's kernels, which some virtual machines cannot run: it is the models' types that are looked at.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = made(inputs)
    # Eight bits of mantissa: three digits are noise.
    torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.05 * float(exact.detach().abs().max()))
    loss = Loss(LossSettings())(logits, torch.ones(logits.shape))
    with torch.backends.mkldnn.flags(enabled=False):
        loss.backward()
    assert loss.dtype == torch.float32
    assert inputs.flat.grad is not None
    assert inputs.flat.grad.isfinite().all()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if case_of(n).is_exported_quickly else pytest.mark.slow) for n in NAMES]
)
def test_the_exported_graph_gives_the_same_logits(kit: Kit, name: str, tmp_path: Path) -> None:
    model = make(kit, name, labels=case_of(name).labels[-1])
    model = kit.randomize(model).float().eval()
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for batch in (1, 2, 500):
        inputs = kit.random_inputs(model.spec, batch, seed=batch)
        with torch.no_grad():
            expected = model(inputs)
        logits, scores = session.run(None, kit.feeds(inputs))
        # Of the largest logit: the order of additions is the runtime's own.
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
        np.testing.assert_allclose(scores, torch.sigmoid(torch.from_numpy(logits)), rtol=1e-5, atol=1e-6)


# Through tables: a learner of three slots (and sequences) of a few values each, and all samples that can be.

ADS, USERS, HOURS = 4, 4, 2
SEQUENCES = [
    {"name": "history", "pooling": "none", "max_values": 4},
    {"name": "query", "pooling": "none", "max_values": 2},
]


def make_job(name: str, directory: Path) -> Job:
    case = case_of(name)
    slots: list[dict[str, Any]] = [{"name": "ad"}, {"name": "user"}, {"name": "hour"}]
    slots += SEQUENCES if case.has_sequences else []
    slots += [{"kind": "dense", "name": "x", "dim": 2}]
    job = {
        "run_dir": str(directory),
        "schema": {"slots": slots, "label": [f"label_{i}" for i in range(case.labels[0])]},
        "data": {"train": "log"},
        "model": {"name": model_of(name), **settings_of(name)},
        "train": {"threads": 1, "seed": 2},
        "dense": {"learning_rate": 0.02},
        "sparse": {"optimizer": {"learning_rate": 0.05}, "initializer": {"low": -0.1, "high": 0.1}},
    }
    return Job.model_validate(job)


def make_item(
    learner: Learner, schema: Schema, cells: list[tuple[int, int, int]], labels: NDArray[Any], weights: NDArray[Any]
) -> PreparedBatch:
    """Samples of one (ad, user, hour) each; sequences repeat what the slots say, and are sometimes empty."""
    ads, users, hours = np.array(cells, dtype=np.uint64).T
    bags = [[[1 + ad] for ad in ads], [[100 + user] for user in users], [[200 + hour] for hour in hours]]
    if len(schema.sparse) > 3:
        bags.append([[300 + user, 310 + user] for user in users])
        bags.append([[400 + hour] * int(hour) for hour in hours])
    batch = Batch(
        schema=schema,
        labels=labels.astype(np.float32),
        dense=np.stack([ads % 2, users / USERS], axis=1).astype(np.float32),
        values=np.array([value for slot in bags for bag in slot for value in bag], dtype=np.uint64),
        offsets=np.cumsum([0, *(len(bag) for slot in bags for bag in slot)], dtype=np.int32),
        weights=weights.astype(np.float32),
        shows=np.ones(len(cells), dtype=np.float32),
    )
    return PreparedBatch(batch, learner.look_up(batch), {})


def entropy(p: NDArray[np.float64]) -> float:
    return float(np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p)))


def test_trains_to_the_known_optimum(name: str, tmp_path: Path) -> None:
    """Every sample there can be, once with each outcome, weighted by its probability: no loss is below the entropy.

    Of several labels the second happens only after the first, and so on, as conversions after clicks.
    """
    case, job = case_of(name), make_job(name, tmp_path)
    learner = Learner(job)
    cells = list(itertools.product(range(ADS), range(USERS), range(HOURS)))
    ads, users, hours = np.array(cells).T
    logit = 0.8 * (ads % 3 - 1) + 0.5 * (users - 1.5) + 0.7 * hours - 0.5
    if case.has_pairs:
        logit = logit + 1.5 * np.where((ads + users) % 2, 1.0, -1.0)
    p, count = 1 / (1 + np.exp(-logit)), case.labels[0]
    outcomes = [np.arange(count) < happened for happened in range(count + 1)]
    chances = [p**happened * (1 - p if happened < count else 1.0) for happened in range(count + 1)]
    labels = np.repeat(np.array(outcomes), len(cells), axis=0)
    item = make_item(learner, job.samples, cells * len(outcomes), labels, np.concatenate(chances))
    # The loss is divided by the number of samples, not of their weights.
    least = float(np.mean([entropy(p ** (i + 1)) for i in range(count)])) / len(outcomes)
    losses = [learner.step(item) for _ in range(150)]
    assert losses[0] > 1.15 * least, "the problem is too easy to show anything"
    assert least * 0.999 <= losses[-1] < least * 1.02


def read_rows(learner: Learner) -> dict[int, bytes]:
    """Weights and counters of every row, by feasign: no two slots here share one."""
    found: dict[int, bytes] = {}
    for table in learner.sparse.tables:
        for rows in table.rows():
            numbers = np.stack([rows.shows, rows.clicks, rows.last_seen.astype(np.float32)], axis=1)
            for feasign, row in zip(rows.feasigns, np.concatenate([rows.weights, numbers], axis=1), strict=True):
                found[int(feasign)] = row.tobytes()
    return found


def test_only_rows_of_the_batch_change(name: str, tmp_path: Path) -> None:
    job = make_job(name, tmp_path)
    learner, labels = Learner(job), case_of(name).labels[0]
    everything = list(itertools.product(range(ADS), range(USERS), range(HOURS)))
    some = [cell for cell in everything if cell[0] in (0, 3) and cell[1] == 2]
    states = []
    for cells in (everything, some):
        outcomes = np.arange(len(cells))[:, None] % (labels + 1) > np.arange(labels)
        item = make_item(learner, job.samples, cells, outcomes, np.ones(len(cells)))
        learner.step(item)
        states.append(read_rows(learner))
    assert states[0].keys() == states[1].keys()
    changed = {feasign for feasign in states[0] if states[0][feasign] != states[1][feasign]}
    assert changed == set(item.batch.values.tolist())
    assert len(changed) < len(states[0])


# With the settings a user gets who names a model and nothing else.


def make_default_job(name: str, directory: Path) -> Job:
    slots: list[dict[str, Any]] = [{"name": "ad"}, {"name": "user"}, {"name": "hour"}]
    slots += [{**SEQUENCES[0], "target": "ad"}, SEQUENCES[1]] if case_of(name).has_sequences else []
    slots += [{"kind": "dense", "name": "x", "dim": 2}]
    job = {
        "run_dir": str(directory),
        "schema": {"slots": slots, "label": [f"label_{i}" for i in range(case_of(name).labels[0])]},
        "data": {"train": "log"},
        "model": {"name": name},
        "train": {"threads": 1},
    }
    return Job.model_validate(job)


@pytest.mark.parametrize("name", list(MODELS))
def test_defaults_learn(name: str, tmp_path: Path) -> None:
    job = make_default_job(name, tmp_path)
    learner = Learner(job)
    cells = list(itertools.product(range(ADS), range(USERS), range(HOURS)))
    labels = np.arange(len(cells))[:, None] % 3 > np.arange(case_of(name).labels[0])
    item = make_item(learner, job.samples, cells, labels, np.ones(len(cells)))
    before, losses = learner.flat_dense(), [learner.step(item) for _ in range(3)]
    assert np.isfinite(losses).all()
    assert losses[2] < losses[0], "two steps on the same batch make it no better"
    assert learner.flat_dense().isfinite().all()
    assert not torch.equal(learner.flat_dense(), before)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_defaults_are_exported(kit: Kit, name: str, tmp_path: Path) -> None:
    job = make_default_job(name, tmp_path)
    learner = Learner(job)
    cells = list(itertools.product(range(ADS), range(USERS), range(HOURS)))
    labels = np.arange(len(cells))[:, None] % 3 > np.arange(case_of(name).labels[0])
    item = make_item(learner, job.samples, cells, labels, np.ones(len(cells)))
    learner.step(item)
    expected = learner.predict(item)
    export_onnx(learner.model.eval(), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = learner.sparse.pull(item, train=False)
    logits = session.run(None, kit.feeds(inputs))[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))
