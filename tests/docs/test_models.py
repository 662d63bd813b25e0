"""Every model and setting is in docs/models with its real default, and the examples there run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

from elasticctr.data.schema import Format
from elasticctr.data.synth import conversions_spec, history_spec, write_log
from elasticctr.models import MODELS, InputSpec, LossSettings, SequenceSpec, create, input_needs, parse, resolve
from elasticctr.models.registry import zeros
from elasticctr.train.input_plan import make_input_spec
from elasticctr.train.job import load_job

ROOT = Path(__file__).parents[2]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def rows(page: str) -> dict[str, str]:
    """Knob → default as the page's table gives them."""
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", page, flags=re.MULTILINE))


def shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("name", MODELS)
def test_every_knob_is_on_the_models_page(name: str) -> None:
    settings = parse(MODELS[name], {}).model_dump(mode="json")
    assert rows(read(f"docs/models/{name}.md")) == {key: shown(value) for key, value in settings.items()}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_in_the_index(name: str) -> None:
    assert f"[{name}]({name}.md)" in read("docs/models/index.md")


@pytest.mark.parametrize("name", MODELS)
def test_every_page_has_its_parts(name: str) -> None:
    """What it computes, the idea, when to use it, knobs, the bar with its source, and a configuration that is there."""
    page = read(f"docs/models/{name}.md")
    parts = [part.strip() for part in page.split("\n\n")]
    assert parts[0].startswith(f"# {name}: ")
    assert not parts[1].startswith("**"), "the formula comes first"
    use = next(i for i, part in enumerate(parts) if part.startswith("**Use it**"))
    assert use >= 3, "the idea comes between the formula and its use"
    assert all(len(part.split("\n")) <= 5 for part in parts[1:use]), "the idea is told in five lines"
    table = next(i for i, part in enumerate(parts) if part.startswith("| key | default | meaning |"))
    bar = next(i for i, part in enumerate(parts) if part.startswith("**Expect**"))
    link = next(i for i, part in enumerate(parts) if part.startswith("Configuration: "))
    assert use < table < bar < link
    has_figure = "published by BARS" in parts[bar] and re.search(r"\.\d{4}\b", parts[bar]) is not None
    assert has_figure != ("no published figure on an open set we can run" in parts[bar])
    target = re.search(r"\]\((.*?)\)", parts[link])
    assert target is not None
    path = (ROOT / "docs" / "models" / target.group(1)).resolve()
    assert path == ROOT / "examples" / "zoo" / f"{name}.yaml"
    assert path.exists()


@pytest.mark.parametrize("name", MODELS)
def test_every_configuration_makes_its_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "zoo")
    job = load_job(Path(f"{name}.yaml"))
    assert (job.model.name, Path(job.run_dir).name) == (name, name)
    cls = resolve(name)
    options = parse(cls, job.model.options)
    model = create(cls, make_input_spec(job.samples, input_needs(cls, options)), options)
    assert model(zeros(model.spec, 2)).shape[0] == 2


@pytest.mark.parametrize("shape", ["history", "conversions"])
def test_schemas_of_synthetic_logs_are_those_that_are_written(shape: str, tmp_path: Path) -> None:
    spec = {"history": history_spec, "conversions": conversions_spec}[shape](Format.SLOT)
    write_log(spec, tmp_path, 1)
    configured = yaml.safe_load(read(f"examples/zoo/{shape}.yaml"))
    for slot in configured["slots"]:
        if slot["kind"] == "sparse":
            slot.pop("dim", None)  # of embeddings: the log knows nothing of them
    assert yaml.safe_load((tmp_path / "schema.yaml").read_text()) == configured


def test_every_knob_of_the_loss_is_on_its_page() -> None:
    defaults = LossSettings().model_dump(mode="json")
    assert rows(read("docs/reference/losses.md")) == {key: shown(value) for key, value in defaults.items()}


@pytest.mark.parametrize("page", ["docs/models/index.md", "docs/how-to/custom-model.md"])
def test_the_python_on_the_page_runs(page: str) -> None:
    scope: dict[str, object] = {"__name__": "docs"}
    for block in re.findall(r"```python\n(.*?)```", read(page), flags=re.DOTALL):
        exec(block, scope)
    assert isinstance(scope["model"], torch.nn.Module)


def test_the_python_of_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", read("examples/03-own-model/README.md"), flags=re.DOTALL)
    assert block is not None
    exec(block.group(1), {"__name__": "docs"})
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_the_parameter_counts_of_dnn() -> None:
    slots = tuple(f"C{i}" for i in range(26))
    for line in re.findall(r"^model: .*", read("docs/models/dnn.md"), flags=re.MULTILINE):
        settings = yaml.safe_load(line.split("#")[0])["model"]
        model = create(settings.pop("name"), InputSpec(slots, (9,) * 26, 13), settings)
        count = sum(p.numel() for p in model.parameters()) / 1e6
        assert f"{count:.2f} M parameters" in line


def test_the_example_of_an_own_model() -> None:
    block = re.search(r"```yaml\n(model:.*?)```", read("examples/03-own-model/README.md"), flags=re.DOTALL)
    assert block is not None
    settings = yaml.safe_load(block.group(1))["model"]
    cls = resolve(settings.pop("name"), folder=ROOT)
    parsed = parse(cls, settings)
    needs = input_needs(cls, parsed)
    spec = InputSpec(("ad",), (needs.dim,), 3, needs.linear, (SequenceSpec("history", needs.dim, 50),))
    model = create(cls, spec, parsed)
    inputs = zeros(spec, 2)
    inputs.sequences["history"].values[:] = torch.randn(2, 50, needs.dim)
    inputs.sequences["history"].lengths[:] = torch.tensor([0, 7])
    empty = model(zeros(spec, 2))
    logits = model(inputs)
    assert logits[0] == empty[0], "values past the length must not count"
    assert logits[1] != empty[1]
