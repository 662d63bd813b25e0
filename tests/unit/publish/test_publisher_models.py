"""Every kind of model scores as published what it scored as trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.publish.learning import SEQUENCE, SLOTS, learn, make_job, make_samples

from elasticctr.publish.publisher import PublishedRun, Publisher
from elasticctr.train.learner import Learner
from elasticctr.versions.verification import verify_version


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lr", "fm", "dnn", "wide_deep", "deepfm", "dcnv2"])
def test_every_model_is_published_and_scores_as_the_trainer(tmp_path: Path, model: str) -> None:
    job = make_job(tmp_path, model)
    learner = Learner(job)
    random = np.random.default_rng(1)
    learn(learner, job, random, 10)
    publisher = Publisher(str(tmp_path / "repo"), "ctr")
    batch = make_samples(job, random, 100)
    for _ in range(2):
        snapshot = PublishedRun(job.samples, batch, {}, {}, learner.sparse.mark())
        manifest = publisher.publish(learner, snapshot)
        assert verify_version(publisher.repository, "ctr", manifest.version).worst <= 1e-6
        learn(learner, job, random, 3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_sequences_are_published(tmp_path: Path, precision: str) -> None:
    module = tmp_path / "model.py"
    module.write_text(SEQUENCE_MODEL, encoding="utf-8")
    job = make_job(tmp_path, slots=[*SLOTS, SEQUENCE])
    settings = job.model_dump(mode="json", by_alias=True)
    settings["model"] = {"name": f"{module}:Reader"}
    settings["train"]["precision"] = precision
    job = type(job).model_validate(settings)
    learner = Learner(job)
    random = np.random.default_rng(2)
    learn(learner, job, random, 10)
    publisher = Publisher(str(tmp_path / "repo"), "ctr", reuse_graph=True)
    snapshot = PublishedRun(job.samples, make_samples(job, random, 50), {}, {}, learner.sparse.mark())
    publisher.publish(learner, snapshot)
    assert verify_version(publisher.repository, "ctr", 1).worst <= 1e-6
    schema = json.loads(publisher.repository.read_file("ctr", 1, "schema.json"))
    assert [s["slot"] for s in schema["sequences"]] == ["clicked"] and schema["sequences"][0]["table"] == "ads"


SEQUENCE_MODEL = """
import torch
from torch import nn
from elasticctr.models import Model, ModelSettings


class Reader(Model):
    settings_class = ModelSettings

    def __init__(self, spec, settings):
        super().__init__(spec, settings)
        self.out = nn.Linear(spec.width + spec.sequences[0].dim, 1)

    def forward(self, inputs):
        sequence = inputs.sequences["clicked"]
        mask = sequence.mask().unsqueeze(2).to(sequence.values.dtype)
        mean = (sequence.values * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return self.out(torch.cat([inputs.flat, mean], dim=1)).squeeze(1)
"""
