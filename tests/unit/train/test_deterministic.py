"""`train.deterministic`: checkpoints that are the same to the bit, run by run and for any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.models.test_conformance import case_of, settings_of
from tests.unit.publish.learning import SEQUENCE, SLOTS, make_job

from elasticctr import _native
from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.models import MODELS
from elasticctr.train import sparse
from elasticctr.train.deterministic import set_deterministic
from elasticctr.train.job import Job
from elasticctr.train.trainer import Trainer

# Through one native call, and through autograd with everything that draws or keeps running sums.
CHOICES: dict[str, dict[str, Any]] = {
    "wide_deep": {"dim": 8, "hidden": [64, 32]},
    "deepfm": {"dim": 8, "hidden": [64, 32], "dropout": 0.3, "batch_norm": True},
}


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    native, of_torch = _native.threads(), torch.get_num_threads()
    yield
    set_deterministic(False)
    _native.set_threads(native)
    torch.set_num_threads(of_torch)


def write_log(path: Path, samples: int, labels: int = 1) -> None:
    random = np.random.default_rng(7)
    lines = []
    for _ in range(samples):
        tags = " ".join(f"tags:t{t}" for t in random.integers(0, 200, random.integers(0, 5)))
        history = " ".join(f"history:{t}" for t in random.integers(1, 200, random.integers(0, 3)))
        clicks = " ".join(f"{name}:{random.integers(0, 2)}" for name in label_names(labels))
        x = " ".join(f"x:{v:.4f}" for v in random.normal(size=2))
        lines.append(f"{clicks} user:u{random.integers(0, 900)} ad:a{random.integers(0, 90)} {tags} {history} {x}")
    path.write_text("\n".join(lines).replace("  ", " ") + "\n")


def label_names(labels: int) -> list[str]:
    return ["click", "buy", "like"][:labels]


def run(
    tmp_path: Path, name: str, model: dict[str, Any], threads: int, *, labels: int = 1, history: bool = True
) -> Path:
    log, directory = tmp_path / "log.txt", tmp_path / name
    if not log.exists():
        write_log(log, 2000, labels)
    slots = [*SLOTS, {**SEQUENCE, "name": "history"}] if history else SLOTS  # as in the cases of conformance
    job = make_job(tmp_path).model_dump(mode="json", by_alias=True)
    job |= {
        "run_dir": str(directory),
        "schema": {"label": label_names(labels), "slots": slots},
        "data": {"train": {"path": str(log), "shuffle_rows": 500}, "valid": str(log)},
        "model": model,
        "train": {"threads": threads, "batch_size": 256, "epochs": 2, "seed": 3, "deterministic": True},
    }
    Trainer(parse_settings(Job, job, "job"), quiet=True).run()
    return sorted((directory / "checkpoints").glob("step-*"))[-1]


def assert_same(a: Path, b: Path) -> None:
    names = sorted(path.name for path in a.iterdir())
    assert names == sorted(path.name for path in b.iterdir()) and {"dense.pt", "main.table"} <= set(names)
    assert [name for name in names if (a / name).read_bytes() != (b / name).read_bytes()] == []


@pytest.mark.parametrize("name", list(CHOICES))
def test_checkpoints_are_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model = {"name": name, **CHOICES[name]}
    first = run(tmp_path, "one", model, 1)
    monkeypatch.setattr(sparse, "today", lambda: 30_000)  # another day
    assert_same(first, run(tmp_path, "again", model, 1))
    assert_same(first, run(tmp_path, "two", model, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_is_the_same_for_one_and_two_threads(tmp_path: Path, name: str) -> None:
    case = case_of(name)
    model = {"name": name, **settings_of(name)}
    shape: dict[str, Any] = {"labels": case.labels[0], "history": case.has_sequences}
    assert_same(run(tmp_path, "one", model, 1, **shape), run(tmp_path, "two", model, 2, **shape))


def test_torch_goes_back_to_what_it_was() -> None:
    set_deterministic(True)
    assert torch.are_deterministic_algorithms_enabled()
    set_deterministic(False)
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    set_deterministic(True)
    set_deterministic(False)
    assert torch.are_deterministic_algorithms_enabled(), "the caller's own choice"
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("more", "says"), [({"cluster": {}}, "is for one process"), ({"train": {"compile": True}}, "choose one of them")]
)
def test_what_cannot_be_promised_is_refused(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    job = make_job(tmp_path).model_dump(mode="json", by_alias=True) | more
    job["train"] = {**more.get("train", {}), "deterministic": True}
    with pytest.raises(ConfigError, match=says):
        parse_settings(Job, job, "job.yaml")
