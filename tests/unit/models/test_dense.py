"""Dense parameters are saved and loaded; tensors that do not fit are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import FailedPrecondition
from elasticctr.models import MODELS, create, load_dense
from elasticctr.models.sequence_settings import SequenceSettings

HIDDEN = {"dnn", "wide_deep", "deepfm", "dcnv2"}
PLAIN = [
    name
    for name, model in MODELS.items()
    if model.labels_needed == 0 and not issubclass(model.settings_class, SequenceSettings)
]


@pytest.mark.parametrize("name", PLAIN)
def test_round_trip(kit: Kit, name: str, tmp_path: Path) -> None:
    spec = kit.spec_for(name, sequences=name != "lr")
    settings = {"hidden": [8, 4], "batch_norm": True} if name in HIDDEN else {}
    saved, other = create(name, spec, settings, seed=1), create(name, spec, settings, seed=2)
    saved(kit.random_inputs(spec)).sum().backward()
    torch.optim.SGD(saved.parameters(), lr=0.1).step()
    torch.save(saved.state_dict(), tmp_path / "dense.pt")
    load_dense(other, torch.load(tmp_path / "dense.pt", weights_only=True))
    inputs = kit.random_inputs(spec, batch=7, seed=9)
    assert torch.equal(saved.eval()(inputs), other.eval()(inputs))


def test_another_width_names_tensors_and_both_shapes(kit: Kit) -> None:
    spec = kit.spec_for("dnn")
    model = create("dnn", spec, {"hidden": [8, 4]})
    state = create("dnn", spec, {"hidden": [6, 4]}).state_dict()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(FailedPrecondition, match=r"weight is \[6, 29\] there but \[8, 29\] in the model") as error:
        load_dense(model, state, "runs/1/checkpoint-300")
    assert "runs/1/checkpoint-300" in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_missing_and_extra_tensors(kit: Kit) -> None:
    spec = kit.spec_for("dnn")
    deep, shallow = create("dnn", spec, {"hidden": [8, 4]}), create("dnn", spec, {"hidden": [8]})
    with pytest.raises(FailedPrecondition, match=r"is missing there"):
        load_dense(deep, shallow.state_dict())
    with pytest.raises(FailedPrecondition, match=r"is not in the model"):
        load_dense(shallow, deep.state_dict())
