"""Search settings: the job they name, the space, and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.errors import ConfigError
from elasticctr.tune.settings import as_overrides, load_tune


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "job.yaml").write_text("schema: {}\n")
    path = tmp_path / "tune.yaml"
    path.write_text(text)
    return path


def test_the_job_is_found_beside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "{job: job.yaml, space: {model.dim: {choice: [4, 8]}}}")
    settings = load_tune(path, ["trials=3", "study_dir=x"])
    assert settings.job == str(tmp_path / "job.yaml") and settings.trials == 3 and settings.study_dir == "x"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("{model.dim: {}}", "exactly one"),
        ("{model.dim: {choice: [1], log: [1, 2]}}", "exactly one"),
        ("{model.dim: {choice: [1, 1]}}", "no value twice"),
        ("{model.dim: {choice: []}}", "at least one"),
        ("{model.dim: {integer: [8, 4]}}", "must be below"),
        ("{model.dim: {integer: [1, 4], step: 0.5}}", "whole number"),
        ("{model.dim: {log: [0, 4]}}", "above 0"),
        ("{model.dim: {choice: [1], step: 2}}", "step is only for"),
        ("{data.train: {choice: [a, b]}}", "cannot be searched"),
        ("{model.dim: {chioce: [1]}}", "choice"),
        ("{}", "space"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, space: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_tune(write(tmp_path, f"{{job: job.yaml, space: {space}}}"), [])


def test_a_grid_needs_values_to_count(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="grid"):
        load_tune(write(tmp_path, "{job: job.yaml, sampler: grid, space: {a.b: {uniform: [0, 1]}}}"), [])
    with pytest.raises(ConfigError, match="does not exist"):
        load_tune(write(tmp_path, "{job: other.yaml, space: {a.b: {uniform: [0, 1]}}}"), [])


def test_values_become_overrides_of_any_kind() -> None:
    values: dict[str, Any] = {"model.hidden": [8, 4], "model.batch_norm": True, "dense.learning_rate": 1e-05}
    assert as_overrides(values) == ["model.hidden=[8, 4]", "model.batch_norm=true", "dense.learning_rate=1e-05"]
