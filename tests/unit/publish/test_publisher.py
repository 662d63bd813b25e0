"""Publishing a learner: deltas on parents give the whole, scores are the trainer's, nothing unfinished counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.publish.learning import make_job
from tests.unit.publish.story import Story

from elasticctr.errors import AlreadyExists, FailedPrecondition
from elasticctr.publish import dense as dense_side
from elasticctr.publish.publisher import PublishedRun
from elasticctr.publish.quality import measure_loss
from elasticctr.train.learner import Learner
from elasticctr.versions.samples import SAMPLES, read_tolerance
from elasticctr.versions.verification import verify_version


def test_a_chain_of_deltas_is_the_trained_table(story: Story) -> None:
    story.learn()
    assert story.publish().kind == "base"
    states = {1: story.trained()}
    for version in range(2, 9):
        story.learn(int(story.random.integers(1, 4)))
        table = story.learner.sparse.tables[version % 2]
        if version % 3 == 0:
            assert table.evict(min_score=2.0) > 0
        if version % 3 == 1:
            known = next(table.rows()).feasigns
            assert table.erase(known[::5]) > 0
        manifest = story.publish()
        assert (manifest.kind, manifest.parent, manifest.chain) == ("delta", version - 1, tuple(range(1, version)))
        states[version] = story.trained()
    for version, state in states.items():
        assert story.published(version) == state
    assert sum(m.gone for m in story.repository.versions("ctr")) > 0
    for version in (1, 5, 8):
        checked = verify_version(story.repository, "ctr", version)
        assert checked.samples == 20 and checked.worst <= 1e-6


def test_a_version_allows_what_float32_rounds(story: Story) -> None:
    """Scores of a model that cancels large numbers are apart by more than 1e-6 in any order of summation but one."""
    story.learn()
    story.publish()
    story.learn(1)
    model: Any = story.learner.model
    hidden, last = model.deep.linears[1:]
    with torch.no_grad():
        hidden.bias += 2.0**13
        last.weight.fill_(0.25)
        last.bias -= 2.0**13
    version = story.publish().version
    tolerances = [read_tolerance(story.repository.read_file("ctr", v, SAMPLES)) for v in (1, version)]
    assert tolerances[0] == 1e-6 and 1e-5 < tolerances[1] < 1e-2
    assert verify_version(story.repository, "ctr", version).worst <= tolerances[1]


def test_a_delta_holds_only_what_changed(story: Story) -> None:
    story.learn(20)
    base = story.publish()
    story.learn(1)
    delta = story.publish()
    assert 0 < delta.rows < base.rows / 2


def test_rows_that_catch_up_are_published_as_bases(story: Story, tmp_path: Path) -> None:
    """Untouched rows changed: a delta would not contain every change."""
    optimizer = {"name": "adam", "learning_rate": 0.01, "l2": 0.1, "catch_up": 50}
    story.job = make_job(tmp_path, sparse={"optimizer": optimizer})
    story.learner = Learner(story.job)
    story.learn(20)
    assert story.publish().kind == "base"
    before = story.trained()
    story.learn(1)
    with pytest.raises(FailedPrecondition, match=r"catch_up.*publish a base"):
        story.publish("delta")
    manifest = story.publish()
    assert (manifest.version, manifest.kind, manifest.chain) == (2, "base", ())
    assert story.published(1) == before
    assert story.published(2) == story.trained()
    assert all(story.trained()[name][f] != row for name, rows in before.items() for f, row in rows.items())
    for version in (1, 2):
        assert verify_version(story.repository, "ctr", version).worst <= 1e-6


def test_the_same_state_is_published_once(story: Story) -> None:
    story.learn()
    marks = story.learner.sparse.mark()
    snapshot = PublishedRun(story.job.samples, story.batch, {}, {}, marks)
    story.publisher.publish(story.learner, snapshot)
    with pytest.raises(AlreadyExists, match="is already version 1"):
        story.publisher.publish(story.learner, snapshot)
    assert story.publisher.publish(story.learner, snapshot, "base").version == 2


def test_chains_end_at_max_chain(tmp_path: Path, template: dense_side.GraphTemplate) -> None:
    story = Story(tmp_path, template, max_chain=2)
    kinds = []
    for _ in range(5):
        story.learn(1)
        kinds.append(story.publish().kind)
    assert kinds == ["base", "delta", "delta", "base", "delta"]
    story.publish()
    with pytest.raises(FailedPrecondition, match="publish a base"):
        story.publish("delta")


def test_a_delta_needs_a_parent_of_its_own_history(
    story: Story, template: dense_side.GraphTemplate, tmp_path: Path
) -> None:
    story.learn()
    with pytest.raises(FailedPrecondition, match="no parent for a delta"):
        story.publish("delta")
    story.publish()
    other = Story(tmp_path, template)
    other.learn()
    assert other.publish().kind == "base"
    story.learn()
    # The newest version is another learner's; the one before it is this one's.
    assert story.publish("delta").parent == 1
    fp16 = story.make_publisher(template, encoding="fp16")
    story.learn()
    assert story.publish(publisher=fp16).kind == "base"


def test_a_base_is_made_when_the_chain_is_broken(story: Story) -> None:
    story.learn()
    story.publish()
    story.learn()
    story.publish()
    story.repository.store.delete("ctr/1/manifest.json")
    story.learn()
    assert story.publish().kind == "base"


def test_resuming_a_checkpoint_goes_on_with_deltas(story: Story, tmp_path: Path) -> None:
    story.learn()
    story.learner.save(tmp_path)
    story.publish("base")
    marks = story.learner.sparse.marks
    resumed = Learner(story.job)
    for table in resumed.sparse.tables:
        table.load(tmp_path / f"{table.settings.name}.table")
        # Published after the checkpoint was written: another history.
        assert not table.knows(marks[table.settings.name])
    texts = json.loads((tmp_path / "marks.json").read_text())
    assert set(texts) == {"main", "ads"}


@pytest.mark.parametrize("encoding", ["fp16", "int8"])
def test_encoded_rows_score_as_samples_say(tmp_path: Path, template: dense_side.GraphTemplate, encoding: Any) -> None:
    story = Story(tmp_path, template, encoding=encoding)
    story.learn()
    manifest = story.publish()
    entry = manifest.tables["main"]
    assert entry.row_bytes == (2 * entry.dim if encoding == "fp16" else 4 + entry.dim)
    assert verify_version(story.repository, "ctr", 1).worst <= 1e-6
    samples = json.loads(story.repository.read_file("ctr", 1, "samples.json"))["samples"]
    moved = max(abs(s["scores"][0] - s["trainer_scores"][0]) for s in samples)
    assert 0 < moved < 0.01
    loss = measure_loss(story.publisher, story.learner, [story.batch], has_labels=True)
    assert loss["samples"] == 20 and 0 < loss["mean_score_difference"] <= loss["largest_score_difference"] < 0.01
    assert abs(loss["auc_fp32"] - loss["auc_encoded"]) < 0.2 and abs(loss["logloss_loss"]) < 0.01


def test_values_that_do_not_fit_an_encoding_are_refused(tmp_path: Path, template: dense_side.GraphTemplate) -> None:
    from elasticctr.errors import DataError
    from elasticctr.versions.encoding import encode_rows

    with pytest.raises(DataError):
        encode_rows(np.array([[1e6]], dtype=np.float32), "fp16")
