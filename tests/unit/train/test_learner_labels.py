"""A learner of several labels: what its loss learns is trained, saved and taken up with the model's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elasticctr.data.batch import Batch
from elasticctr.errors import FailedPrecondition
from elasticctr.train.checkpoint import open_checkpoint, write_checkpoint
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.reading import PreparedBatch
from elasticctr.versions.samples import make_batch

LOSSES = [
    {"task_weights": "uncertainty"},
    {"kind": "jrc", "group": "user", "jrc_hidden": [4]},
    {"pairwise": 0.5, "group": "user", "negative_rate": 0.5},
    {"delayed": "fnc"},
]


def make_job(directory: Path, loss: dict[str, Any], model: str = "mmoe") -> Job:
    options = {"head_hidden": [4], "experts": 2} if model == "mmoe" else {}
    return Job.model_validate(
        {
            "run_dir": str(directory),
            "schema": {"slots": [{"name": "user"}, {"name": "ad"}], "label": ["click", "buy"]},
            "data": {"train": "log"},
            "model": {"name": model, "dim": 4, "hidden": [8], **options},
            "dense": {"learning_rate": 0.01},
            "train": {"threads": 1},
            "loss": loss,
        }
    )


def make_item(learner: Learner, job: Job, seed: int, count: int = 64) -> PreparedBatch:
    random = np.random.default_rng(seed)
    slots = [[[int(v)] for v in random.integers(1, 9, count)] for _ in range(2)]
    batch: Batch = make_batch(job.samples, slots, [[] for _ in range(count)])
    batch.labels[:, 0] = random.random(count) < 0.5
    batch.labels[:, 1] = batch.labels[:, 0] * (random.random(count) < 0.5)
    return PreparedBatch(batch, learner.look_up(batch), {})


def steps(learner: Learner, job: Job, seeds: range) -> list[float]:
    return [learner.step(make_item(learner, job, seed)) for seed in seeds]


def save(learner: Learner, job: Job) -> Path:
    directory = Path(job.run_dir) / "checkpoints"
    return write_checkpoint(directory, 3, {"step": 3, "identity": learner.identity}, learner.save)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_saved_and_restored_it_steps_on_as_if_nothing_had_been(tmp_path: Path, loss: dict[str, Any]) -> None:
    job = make_job(tmp_path, loss)
    whole = Learner(job)
    steps(whole, job, range(3))
    path = save(whole, job)
    restored = Learner(job)
    restored.load(open_checkpoint(path))
    assert steps(restored, job, range(3, 6)) == steps(whole, job, range(3, 6))
    assert torch.equal(restored.flat_dense(), whole.flat_dense())
    assert restored.metrics.report() == whole.metrics.report()
    assert set(whole.metrics.report()["labels"]) == {"click", "buy"}


def test_what_the_loss_learns_is_part_of_the_dense_vector_and_moves(tmp_path: Path) -> None:
    job = make_job(tmp_path, {"task_weights": "uncertainty"})
    learner = Learner(job)
    model = sum(p.numel() for p in learner.model.parameters())
    assert learner.dense_floats == model + 2
    assert learner.flat_dense()[model:].tolist() == [0.0, 0.0]
    steps(learner, job, range(5))
    # The second label is rarer, so its loss is smaller, and its variance falls faster.
    click, buy = learner.flat_dense()[model:].tolist()
    assert click != 0.0
    assert buy != 0.0
    other = Learner(job)
    other.set_flat_dense(learner.flat_dense())
    assert torch.equal(other.flat_dense(), learner.flat_dense())
    assert other.dense_vector().values.shape == (model + 2,)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path, {"task_weights": "uncertainty"})
    learner = Learner(job)
    path = save(learner, job)
    plain = Learner(make_job(tmp_path, {}))
    with pytest.raises(FailedPrecondition, match=r"of the loss.*log_variances"):
        plain.load(open_checkpoint(path))


def test_metrics_of_thinned_out_negatives_are_of_the_whole_log(tmp_path: Path) -> None:
    job = make_job(tmp_path, {"negative_rate": 0.25})
    learner = Learner(job)
    item = make_item(learner, job, 1)
    learner.step(item)
    clicks = float(item.batch.labels[:, 0].sum())
    assert learner.metrics.compute().ctr == pytest.approx(clicks / (clicks + 4 * (64 - clicks)))


def test_a_label_or_slot_that_is_not_there_is_said_with_the_job(tmp_path: Path) -> None:
    for loss, word in (({"group": "session"}, "loss.group"), ({"delayed_label": "like"}, "'like'")):
        with pytest.raises(ValueError, match=word):
            make_job(tmp_path, loss)
