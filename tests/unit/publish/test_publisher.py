"""Publishing a learner: deltas on parents give the whole, scores are the trainer's, nothing unfinished counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.publish.learning import SEQUENCE, SLOTS, learn, make_job, make_samples

from elasticctr.errors import AlreadyExists, Corruption, FailedPrecondition
from elasticctr.publish import dense as dense_side
from elasticctr.publish.publisher import PublishedRun, Publisher
from elasticctr.publish.quality import measure_loss
from elasticctr.storage.store import LocalStore
from elasticctr.train.learner import Learner
from elasticctr.versions import Manifest, Repository
from elasticctr.versions.fsck import rebuild_donefile
from elasticctr.versions.samples import SAMPLES, read_tolerance
from elasticctr.versions.sparse import read_part
from elasticctr.versions.verification import verify_version

Rows = dict[str, dict[int, bytes]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dense_side.GraphTemplate:
    """Exporting takes seconds; every publisher of these tests starts from one export."""
    return dense_side.GraphTemplate(Learner(make_job(tmp_path_factory.mktemp("template"))))


class Story:
    """One learner and its repository."""

    def __init__(self, tmp_path: Path, template: dense_side.GraphTemplate, **options: Any) -> None:
        self.job = make_job(tmp_path)
        self.learner = Learner(self.job)
        self.random = np.random.default_rng(7)
        self.repository = Repository(str(tmp_path / "repo"))
        self.publisher = self.make_publisher(template, **options)
        self.batch = make_samples(self.job, self.random, 20)

    def make_publisher(self, template: dense_side.GraphTemplate, **options: Any) -> Publisher:
        publisher = Publisher(self.repository, "ctr", reuse_graph=True, **options)
        publisher._template = template
        return publisher

    def learn(self, steps: int = 3) -> None:
        learn(self.learner, self.job, self.random, steps)

    def publish(self, kind: Any = "auto", publisher: Publisher | None = None) -> Manifest:
        snapshot = PublishedRun(self.job.samples, self.batch, {}, {"step": 1}, self.learner.sparse.mark())
        return (publisher or self.publisher).publish(self.learner, snapshot, kind)

    def trained(self) -> Rows:
        return {
            table.settings.name: {
                feasign: weights.tobytes()
                for rows in table.rows()
                for feasign, weights in zip(rows.feasigns.tolist(), rows.weights, strict=True)
            }
            for table in self.learner.sparse.tables
        }

    def published(self, version: int) -> Rows:
        return read_chain(self.repository, self.repository.chain("ctr", version))


def read_chain(repository: Repository, chain: list[Manifest]) -> Rows:
    found: Rows = {name: {} for name in chain[-1].tables}
    for manifest in chain:
        for name, rows in found.items():
            for file in manifest.parts(name, "gone"):
                for feasigns, _ in read_part(repository, manifest, file):
                    for feasign in feasigns.tolist():
                        rows.pop(feasign, None)
            for file in manifest.parts(name):
                for feasigns, encoded in read_part(repository, manifest, file):
                    assert encoded is not None
                    rows |= {f: row.tobytes() for f, row in zip(feasigns.tolist(), encoded, strict=True)}
    return found


@pytest.fixture
def story(tmp_path: Path, template: dense_side.GraphTemplate) -> Story:
    return Story(tmp_path, template)


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


def test_verify_finds_a_flip_in_every_file(story: Story) -> None:
    story.learn()
    story.publish()
    story.learn()
    story.learner.sparse.tables[0].evict(min_score=2.0)
    manifest = story.publish()
    assert any("gone" in file.name for file in manifest.files)
    root = Path(story.repository.url, "ctr")
    for version in (1, 2):
        for path in sorted(p for p in (root / str(version)).rglob("*") if p.is_file()):
            good = path.read_bytes()
            for place in (0, len(good) // 2, len(good) - 1):
                bad = bytearray(good)
                bad[place] ^= 0x10
                path.write_bytes(bytes(bad))
                with pytest.raises(Corruption, match=path.name):
                    verify_version(story.repository, "ctr", 2)
            path.write_bytes(good[:-1])
            with pytest.raises(Corruption):
                verify_version(story.repository, "ctr", 2)
            path.write_bytes(good)
    (root / "1" / "samples.json").unlink()
    with pytest.raises(Corruption, match="in the manifest but missing"):
        verify_version(story.repository, "ctr", 1)


class Killed(BaseException):
    """The process is dead: nothing happens after it, not even clean-up."""


class MortalStore(LocalStore):
    """Dies before or after its n-th change; later changes are not made."""

    def __init__(self, root: str, at: int, after: bool) -> None:
        super().__init__(root)
        self.left, self.after, self.changes = at, after, 0

    def _step(self, change: Any) -> Any:
        self.changes += 1
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        result = change()
        if self.left == 0:
            raise Killed
        return result

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        entering = super().create(name)
        if self.left <= 1 and not self.after:
            self._step(lambda: None)
        with entering as file:
            yield file
        self._step(lambda: None)

    def write_bytes(self, name: str, data: bytes) -> None:
        self._step(lambda: LocalStore.write_bytes(_plain(self), name, data))

    def write_new(self, name: str, data: bytes) -> bool:
        return bool(self._step(lambda: LocalStore.write_new(self, name, data)))

    def append(self, name: str, data: bytes) -> None:
        self._step(lambda: LocalStore.append(self, name, data))

    def delete(self, name: str) -> None:
        self._step(lambda: LocalStore.delete(self, name))

    def delete_tree(self, name: str) -> None:
        self._step(lambda: LocalStore.delete_tree(self, name))


def make_old(path: Path) -> None:
    """Leftovers and old versions go only after the time of a lease."""
    for entry in path.rglob("*"):
        os.utime(entry, (1, 1))


def _plain(store: LocalStore) -> LocalStore:
    return LocalStore(store.url)


@pytest.mark.parametrize("after", [False, True])
def test_a_publisher_killed_at_every_step(story: Story, template: dense_side.GraphTemplate, after: bool) -> None:
    story.learn()
    story.publish()
    expected = {1: digest(story.published(1))}
    url = story.repository.url
    for at in range(1, 100):
        story.learn(1)
        store = MortalStore(url, at, after)
        mortal = Publisher(Repository(url, store), "ctr", reuse_graph=True, keep=3)
        mortal._template = template
        is_dead = False
        try:
            story.publish(publisher=mortal)
        except Killed:
            is_dead = True
        live = story.repository.live("ctr").version
        assert digest(story.published(live)) == expected.get(live, digest(story.trained()))
        if live not in expected:
            assert live > max(expected)
            expected[live] = digest(story.trained())
        # The dead process' lock must not stand in the way, whoever checks: this one lives on under the same pid.
        story.repository.store.delete("ctr/publisher.lock")
        make_old(Path(url, "ctr"))
        manifest = story.publish("base" if live == max(expected) and at % 2 else "auto") if is_dead else None
        if manifest is not None:
            expected[manifest.version] = digest(story.trained())
            there = {p for p in Path(url, "ctr").iterdir() if p.name.isdigit()}
            known = {str(m.version) for m in story.repository.versions("ctr")}
            assert known <= {p.name for p in there}
            assert all((p / "manifest.json").exists() for p in there)
        else:
            break
    assert not is_dead and at > 8
    for found in story.repository.versions("ctr"):
        assert digest(story.published(found.version)) == expected[found.version]


@pytest.mark.promise(
    "the donefile is lost, then a version is published",
    "publish refuses, removes nothing and names `elasticctr fsck --rebuild`; afterwards it works again",
)
def test_publishing_without_the_donefile_is_refused(story: Story) -> None:
    for _ in range(3):
        story.learn(1)
        story.publish()
    place = Path(story.repository.url, "ctr")
    make_old(place)
    (place / "donefile").unlink()
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    story.learn(1)
    with pytest.raises(FailedPrecondition, match=r"no donefile.*elasticctr fsck .* --rebuild"):
        story.publish()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    rebuild_donefile(story.repository, "ctr")
    assert story.publish().chain == (1, 2, 3) and story.published(4) == story.trained()


@pytest.mark.promise(
    "line 1 of the donefile has a flipped byte, then a version is published with --keep 1",
    "the base that the others depend on stays; publishing continues with a warning that names `elasticctr fsck`",
)
def test_publishing_with_a_damaged_line_removes_nothing(
    story: Story, template: dense_side.GraphTemplate, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        story.learn(1)
        story.publish()
    place = Path(story.repository.url, "ctr")
    make_old(place)
    donefile = place / "donefile"
    donefile.write_bytes(donefile.read_bytes().replace(b'"version": 1,', b'"version": 0,', 1))
    story.learn(1)
    assert story.publish(publisher=story.make_publisher(template, keep=1)).version == 4
    told = capsys.readouterr().err.replace("\n", " ")
    assert "nothing is removed" in told and "elasticctr fsck" in told
    assert [path.name for path in sorted(place.iterdir()) if path.name.isdigit()] == ["1", "2", "3", "4"]
    rebuild_donefile(story.repository, "ctr")
    assert len(story.repository.chain("ctr", 3)) == 3


def digest(rows: Rows) -> str:
    return hashlib.sha256(repr(sorted((t, sorted(r.items())) for t, r in rows.items())).encode()).hexdigest()


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
