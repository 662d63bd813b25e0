"""From a PaddleRec configuration file to what is to be run here: steps, each with a job file of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.compat.paddlerec.sections import Note, Section
from elasticctr.config import apply_overrides, load_yaml
from elasticctr.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of the file: `train`, or `evaluate` an earlier run's checkpoints of the epochs [first, last)."""

    name: str
    kind: str
    job: dict[str, Any]
    epochs: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Translation:
    steps: tuple[PlannedRun, ...]
    notes: tuple[Note, ...]


def translate(path: Path, overrides: Sequence[str] = ()) -> Translation:
    """The steps of the file, with `key=value` overrides laid over it; `model=NAME` chooses one of our models.

    Raises ConfigError that names the key for everything that can neither be honoured nor ignored.
    """
    from elasticctr.compat.paddlerec.version1 import translate_version1
    from elasticctr.compat.paddlerec.version2 import translate_version2

    model = ""
    rest = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "model":
            model = value
        else:
            rest.append(override)
    values = apply_overrides(load_yaml(path), rest, {})
    runner = values.get("runner")
    section = Section(values, "", str(path))
    if isinstance(runner, list):
        steps = translate_version1(section, path, model)
    elif isinstance(runner, Mapping):
        steps = translate_version2(section, path, model)
    else:
        found = "no runner" if runner is None else f"a {type(runner).__name__} as runner"
        raise ConfigError(
            f"{path}: is no PaddleRec configuration: {found}. 1.8 has a list of runners and `mode`, 2.x has a section "
            "`runner:`. Job files of ElasticCTR are run by `elasticctr train`"
        )
    section.finish()
    return Translation(tuple(steps), tuple(section.notes))


def slot_schema(label: str, sparse: Sequence[str], dense: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The schema of PaddleRec's slot text: `name:value` in any order, a dense slot repeated once per dimension."""
    slots: list[dict[str, Any]] = [{"kind": "dense", "name": name, "dim": dim} for name, dim in dense]
    slots += [{"name": name} for name in sparse]
    return {"format": "slot", "label": label, "slots": slots}


def read_strategy(section: Section, key: str, given: str) -> str:
    """PaddleRec's name of a strategy as one of ours."""
    choices = {"sync": "sync", "async": "async", "half_async": "half_async", "geo": "geo"}
    if not given:
        return "async"
    checked = Section({key: given}, "", "")
    try:
        return choices[checked.choice(key, list(choices), "async")]
    except ConfigError as e:
        raise section.error(key, str(e).removeprefix(f": {key}: ")) from None
