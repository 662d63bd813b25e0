"""Exported graphs against torch, through ONNX Runtime, at several batch sizes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError, InternalError
from elasticctr.models import Inputs, InputSpec, Model, SequenceSpec, create
from elasticctr.models.export import MODEL_KEY, SPEC_KEY, _write, export_onnx, input_names

TOWER = {"dim": 4, "hidden": [16, 8]}


class Attention(Model):
    """A user's model: attends over a sequence, multiplies with a pooled slot, adds linear weights."""

    linear = True

    def __init__(self, spec: InputSpec, settings: Any) -> None:
        super().__init__(spec, settings)
        self.score = torch.nn.Linear(settings.dim, 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        history = inputs.sequences["history"]
        scores = self.score(history.values).squeeze(2).masked_fill(~history.mask(), -1e9)
        read = (torch.softmax(scores, dim=1).unsqueeze(2) * history.values).sum(dim=1)
        return (read * inputs.pooled[:, 0]).sum(dim=1) + inputs.linear.sum(dim=1) + inputs.dense.sum(dim=1)


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "lr": ("lr", {}, {}),
    "fm": ("fm", {"dim": 4}, {"sequences": True}),
    "dnn": ("dnn", TOWER | {"batch_norm": True, "dropout": 0.3}, {"dims": (2, 3, 4), "sequences": True}),
    "wide_deep": ("wide_deep", TOWER | {"wide": "both"}, {"labels": 2}),
    "deepfm": ("deepfm", TOWER, {"dense_dim": 0}),
    "dcnv2": ("dcnv2", TOWER | {"structure": "parallel", "rank": 3}, {"sequences": True}),
    "custom": (Attention, {"dim": 4}, {"sequences": True}),
    "sequences_only": ("dnn", TOWER, {"slots": (), "dense_dim": 0, "sequences": True}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in ("sequences_only", "fm") else c for c in CASES]
)
def test_the_graph_equals_the_model(kit: Kit, case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name, settings, shape = CASES[case]
    spec = kit.spec_for(name, settings, **shape)
    model = create(name, spec, settings, seed=3)
    model = kit.randomize(model).float()
    if case == "dnn":
        model(kit.random_inputs(spec, batch=64))  # moves the running means off zero
    path = tmp_path / "new" / "model.onnx"
    export_onnx(model, path)
    assert capfd.readouterr() == ("", "")
    assert model.training
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == input_names(spec)
    assert [o.name for o in session.get_outputs()] == ["logits", "scores"]
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata[MODEL_KEY] == model.name
    assert json.loads(metadata[SPEC_KEY])["slots"] == list(spec.slots)
    model.eval()
    for batch in (1, 2, 7, 1000):
        inputs = kit.random_inputs(spec, batch, seed=batch)
        with torch.no_grad():
            expected = model(inputs)
        logits, scores = session.run(None, kit.feeds(inputs))
        np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scores, torch.sigmoid(expected).numpy(), rtol=1e-5, atol=1e-6)


def test_names_that_collide_are_refused() -> None:
    sequences = (SequenceSpec("a", 4, 2), SequenceSpec("a_lengths", 4, 2))
    with pytest.raises(ConfigError, match="'seq_a_lengths'; rename"):
        input_names(InputSpec((), (), sequences=sequences))


def test_a_model_that_cannot_be_exported_leaves_no_file(kit: Kit, tmp_path: Path) -> None:
    class Branching(Model):
        def forward(self, inputs: Inputs) -> torch.Tensor:
            if inputs.flat.sum() > 0:
                return inputs.flat.sum(dim=1)
            return inputs.flat.prod(dim=1)

    spec = kit.spec_for(Branching)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the one before")
    with pytest.raises(ConfigError, match=r"'Branching' cannot be exported to ONNX.*branches"):
        export_onnx(create(Branching, spec), path)
    assert path.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InternalError, match="cannot be written"):
        export_onnx(create("lr", kit.spec_for("lr")), tmp_path / "file" / "model.onnx")


def test_a_full_disk_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the one before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        _write(path, b"half")
    assert path.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [path]
