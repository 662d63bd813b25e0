"""Models are found by name or file; a wrong name or setting gets the nearest."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from elasticctr import models
from elasticctr.errors import ConfigError, NotFound
from elasticctr.models import (
    MODELS,
    InputNeeds,
    Inputs,
    InputSpec,
    Model,
    ModelSettings,
    create,
    input_needs,
    parse,
    resolve,
)
from elasticctr.models.registry import zeros

SPEC = InputSpec(("ad", "user"), (4, 4), dense_dim=2)

HEADER = """
from __future__ import annotations
from pydantic import Field
from torch import Tensor, nn
from elasticctr.models import Inputs, InputSpec, Model, ModelSettings
"""

GOOD = """
class TinySettings(ModelSettings):
    scale: float = Field(1.0, description="of the logits")

class Tiny(Model):
    settings_class = TinySettings

    def __init__(self, spec: InputSpec, settings: TinySettings) -> None:
        super().__init__(spec, settings)
        self.head = nn.Linear(spec.embedding_width + spec.dense_dim, spec.labels)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.to_logits(self.settings.scale * self.head(inputs.deep))
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(text: str, name: str = "model.py", header: str = HEADER) -> str:
        (tmp_path / name).write_text(header.lstrip("\n") + textwrap.dedent(text))
        return str(tmp_path / name)

    return write


def line_of(path: str, text: str) -> int:
    with open(path) as file:  # noqa: PTH123
        return next(number for number, line in enumerate(file, 1) if text in line)


def test_the_package_offers_its_names() -> None:
    for name in models.__all__:
        assert getattr(models, name).__name__ == name if name != "MODELS" else models.MODELS
    with pytest.raises(AttributeError, match="no attribute 'Modle'"):
        models.Modle  # noqa: B018


def test_every_model_has_a_name_settings_and_descriptions() -> None:
    assert list(MODELS) == sorted(MODELS)
    for name, cls in MODELS.items():
        assert cls.name == name
        parse(cls, {})
        for field, info in cls.settings_class.model_fields.items():
            assert info.description, f"{name}.{field} has no description"


@pytest.mark.parametrize(("name", "nearest"), [("deepmf", "deepfm"), ("wide-deep", "wide_deep"), ("dcnv", "dcnv2")])
def test_an_unknown_name_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown model '{name}'; did you mean '{nearest}'"):
        resolve(name)


def test_an_unknown_setting_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"job.yaml: unknown key 'hiden'; did you mean 'hidden'\?"):
        create("dnn", SPEC, {"hiden": [3]}, source="job.yaml")


@pytest.mark.parametrize("bad", [{"hidden": [0]}, {"dropout": 1.0}, {"dim": 0}, {"hidden": "many"}])
def test_settings_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        create("dnn", SPEC, bad)


def test_settings_of_another_model_are_refused() -> None:
    with pytest.raises(ConfigError, match="DNNSettings, not LRSettings"):
        create("dnn", SPEC, parse(resolve("lr"), {}))


def test_parameters_depend_on_the_seed_and_on_nothing_else() -> None:
    torch.manual_seed(1)
    first = create("deepfm", InputSpec(("a",), (4,), 2, True), {"dim": 4}, seed=5)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn), "creating a model must not move the global generator"
    again = create("deepfm", InputSpec(("a",), (4,), 2, True), {"dim": 4}, seed=5)
    other = create("deepfm", InputSpec(("a",), (4,), 2, True), {"dim": 4}, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("suffix", ["", ":Tiny"])
def test_a_users_file(write: Callable[..., str], suffix: str) -> None:
    path = write(GOOD)
    cls = resolve(path + suffix)
    assert input_needs(cls, parse(cls, {"dim": 4})) == InputNeeds(4, False)
    model: Any = create(path + suffix, SPEC, {"scale": 2.0})
    assert model.name == "Tiny"
    assert model.settings.scale == 2.0
    with pytest.raises(ConfigError, match="did you mean 'scale'"):
        create(path + suffix, SPEC, {"scael": 2.0})


def test_a_relative_path_starts_at_the_folder(write: Callable[..., str], tmp_path: Path) -> None:
    write(GOOD)
    assert resolve("model.py:Tiny", folder=tmp_path).__name__ == "Tiny"


def test_a_users_file_may_import_its_neighbour(write: Callable[..., str]) -> None:
    write("WIDTH = 7\n", name="neighbour_of_model.py", header="")
    path = write("from neighbour_of_model import WIDTH\n" + GOOD)
    assert resolve(path).__name__ == "Tiny"


def test_a_class_from_python() -> None:
    class Mean(Model):
        linear = True

        def forward(self, inputs: Inputs) -> torch.Tensor:
            return inputs.linear.mean(dim=1)

    assert Mean.name == "Mean"
    spec = InputSpec(("ad",), (9,), linear=input_needs(Mean, ModelSettings()).linear)
    assert create(Mean, spec)(zeros(spec, 4)).shape == (4,)


def test_a_class_that_is_not_a_model() -> None:
    with pytest.raises(ConfigError, match="Linear is not a model"):
        resolve(torch.nn.Linear)  # type: ignore[arg-type]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere.py: no such file"):
        resolve("nowhere.py:Net", folder=tmp_path)


def test_a_missing_class_names_those_there(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="has no class 'Tyni'; its models are Tiny"):
        resolve(write(GOOD) + ":Tyni")


def test_a_class_in_the_file_that_is_not_a_model(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="'TinySettings' is not a model"):
        resolve(write(GOOD) + ":TinySettings")


def test_several_models_in_a_file_need_a_choice(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match=r"has several models; its models are Tiny, Twin; name one as model.py:"):
        resolve(write(GOOD + "\nclass Twin(Tiny):\n    pass\n"))


def test_no_model_in_a_file(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="has no subclass of"):
        resolve(write("x = 1\n"))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("def broken(:\n    pass\n", "def broken(:", "invalid syntax"),
        ("import a_module_that_is_not_there\n", "import a_module", "ModuleNotFoundError"),
        ("def f():\n    return 1 / 0  # here\nf()\n", "# here", "ZeroDivisionError"),
        ("import sys\nsys.exit(3)  # here\n", "# here", "SystemExit"),
    ],
)
def test_a_file_that_fails_to_load(write: Callable[..., str], text: str, where: str, what: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError, match=rf"model.py:{line_of(path, where)}: .*{what}"):
        resolve(path)


def test_binary_garbage(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"model.py"):
        resolve("model.py", folder=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("nn.Linear(spec.embedding_width", "nn.Linear(spec.embedding_widht", "cannot be built.*AttributeError"),
        ("self.head(inputs.deep)", "self.head(inputs.dense)", "forward.*fails.*mat1"),
        ("super().__init__(spec, settings)", "pass", "cannot be built.*AttributeError"),
    ],
)
def test_a_users_mistake_is_named_by_line(write: Callable[..., str], old: str, new: str, what: str) -> None:
    path = write(GOOD.replace(old, new))
    line = line_of(path, "self.head = " if "built" in what else "return self.to_logits")
    with pytest.raises(ConfigError, match=rf"{what}") as error:
        create(path, SPEC)
    assert f"{path}:{line}: " in str(error.value)


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("self.head(inputs.deep)", r"returned shape \[3, 1\].*expected \[3\].*to_logits"),
        ("self.head(inputs.deep).mean()", r"returned shape \[\].*expected \[3\]"),
        ("None", "returned NoneType"),
        ("inputs.flat[:, 0].long()", "returned torch.int64"),
    ],
)
def test_a_wrong_output_is_named(write: Callable[..., str], returned: str, what: str) -> None:
    path = write(GOOD.replace("self.to_logits(self.settings.scale * self.head(inputs.deep))", returned))
    with pytest.raises(ConfigError, match=what):
        create(path, SPEC)


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("self(inputs)", "must return two things"),
        ("(inputs.flat, None)", r"logits of forward first, of shape \[3\]"),
        ("(self(inputs), self(inputs).mean())", r"auxiliary losses of \[\].*expected \[3\]: one per sample"),
        ("(self(inputs), 0.5)", "auxiliary losses of float"),
        ("(self(inputs), self.head.nothing)", r":\d+: AttributeError"),
    ],
)
def test_a_wrong_auxiliary_loss_is_named(write: Callable[..., str], returned: str, what: str) -> None:
    path = write(f"{GOOD}\n    def training_forward(self, inputs):\n        return {returned}\n")
    with pytest.raises(ConfigError, match=what):
        create(path, SPEC)


def test_no_forward() -> None:
    class Empty(Model):
        pass

    with pytest.raises(ConfigError, match="does not define forward"):
        create(Empty, SPEC)


def test_the_trial_leaves_modes_alone() -> None:
    class Frozen(Model):
        def __init__(self, spec: InputSpec, settings: Any) -> None:
            super().__init__(spec, settings)
            self.norm = torch.nn.BatchNorm1d(spec.width).eval()

        def forward(self, inputs: Inputs) -> torch.Tensor:
            return self.norm(inputs.flat).sum(dim=1)

    model: Any = create(Frozen, SPEC)
    assert model.training
    assert not model.norm.training
