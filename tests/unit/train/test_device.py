"""`train.device`: the same training wherever the dense part computes. What needs a GPU is left out without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.test_conformance import CASES, Case

from elasticctr.errors import ConfigError
from elasticctr.models import MODELS
from elasticctr.models.inputs import Inputs, InputSpec, Sequence, SequenceSpec
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.trainer import Trainer

has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def make_job(root: Path, *, has_sequences: bool = False, **sections: Any) -> Job:
    root.mkdir(exist_ok=True)
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(600):
        ad, user, hour = rng.integers(1, 40), rng.integers(1, 60), rng.integers(1, 25)
        history = " ".join(f"history:{rng.integers(1, 40)}" for _ in range(rng.integers(0, 5)))
        is_click = (ad + hour) % 3 == 0
        lines.append(f"click:{is_click:d} ad:{ad} user:{user} hour:{hour} {history if has_sequences else ''}\n")
    (root / "log").write_text("".join(lines))
    slots: list[dict[str, Any]] = [{"kind": "sparse", "name": name} for name in ("ad", "user", "hour")]
    if has_sequences:
        slots.append({"kind": "sparse", "name": "history", "pooling": "none", "max_values": 4, "target": "ad"})
    return Job.model_validate(
        {
            "run_dir": str(root / "run"),
            "schema": {"slots": slots},
            "data": {"train": {"path": str(root / "log")}},
            "train": {"batch_size": 100, "threads": 1, **sections.pop("train", {})},
            **sections,
        }
    )


def test_a_machine_without_a_gpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    job = make_job(tmp_path, model={"name": "lr"}, train={"device": "cuda"})
    with pytest.raises(ConfigError, match=r"train\.device is cuda.*no GPU here.*leave train\.device out"):
        Trainer(job)
    Learner(job)  # whoever reads the run later needs none


@pytest.mark.parametrize("other", [{"train": {"deterministic": True}}, {"cluster": {"pservers": 1}}])
def test_what_a_gpu_cannot_be_combined_with(tmp_path: Path, other: dict[str, Any]) -> None:
    train = {"device": "cuda"} | other.pop("train", {})
    with pytest.raises(ValueError, match=r"leave out (train\.deterministic|the cluster section), or train\.device"):
        make_job(tmp_path, train=train, **other)


def test_gradients_of_a_copy_arrive_at_the_inputs() -> None:
    spec = InputSpec(("ad",), (2,), sequences=(SequenceSpec("history", 2, 3),))
    flat = torch.ones(4, 2, requires_grad=True)
    values = torch.ones(4, 3, 2, requires_grad=True)
    inputs = Inputs(spec, flat, {"history": Sequence(values, torch.tensor([0, 1, 2, 3]))})
    there = inputs.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    history = there.sequences["history"]
    ((there.embeddings * 3).sum() + (history.values * history.mask()[:, :, None]).sum()).backward()
    assert flat.grad is not None and values.grad is not None
    assert flat.grad.tolist() == [[3.0, 3.0]] * 4
    assert values.grad[:, :, 0].tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]


@has_gpu
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].labels_needed < 2])
def test_every_model_learns_the_same(tmp_path: Path, name: str) -> None:
    case = CASES.get(name, Case())
    results = []
    for device in ("cpu", "cuda"):
        job = make_job(
            tmp_path / device,
            has_sequences=case.has_sequences,
            model={"name": name, **case.settings, **({"wide": "sparse"} if name == "wide_deep" else {})},
            train={"device": device, "epochs": 2},
        )
        results.append(Trainer(job, quiet=True).run().metrics["train"]["logloss"])
    assert results[0] == pytest.approx(results[1], rel=1e-4)


@has_gpu
def test_a_run_on_a_gpu_is_resumed(tmp_path: Path) -> None:
    model = {"name": "dnn", "dim": 4, "hidden": [8], "dropout": 0.5, "batch_norm": True}
    results = []
    for name, parts in (("whole", (12,)), ("halves", (6, 12))):
        for steps in parts:
            train = {"device": "cuda", "epochs": 2, "steps": steps}
            result = Trainer(make_job(tmp_path / name, model=model, train=train), quiet=True).run(
                resume=steps != parts[0]
            )
        results.append(result.metrics["train"]["logloss"])
    assert results[0] == pytest.approx(results[1], rel=1e-5)


@has_gpu
def test_a_model_on_a_gpu_is_exported(tmp_path: Path) -> None:
    job = make_job(tmp_path, model={"name": "dnn", "dim": 4, "hidden": [8]}, train={"device": "cuda"})
    learner = Learner(job, device="cuda")
    assert all(p.is_cpu for p in learner.host_model().parameters()) and learner.parameters[0].is_cuda
