"""The shape of a job, as roles without torch learn it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.errors import ConfigError
from elasticctr.ps import shape
from elasticctr.ps.shape import JobShape, measure, shape_of
from elasticctr.train.job import Job


def make_job(run_dir: Path, **model: Any) -> Job:
    return Job.model_validate(
        {
            "run_dir": str(run_dir),
            "schema": {"slots": [{"name": "user"}, {"name": "ad", "table": "ads"}, {"kind": "dense", "name": "x"}]},
            "data": {"train": "log"},
            "model": {"name": "wide_deep", "dim": 4, "hidden": [8], **model},
        }
    )


def test_a_child_says_what_the_model_says_and_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path / "run")
    found = shape_of(job)
    # Tower: (8 embedding columns + 1 dense) * 8 + 8, then 8 + 1; wide: 1 + 1.
    assert found.dense_floats == 9 * 8 + 8 + 8 + 1 + 2
    assert [table.name for table in found.tables] == ["main", "ads"]
    assert found == measure(job)
    monkeypatch.setattr(shape, "_ask_child", lambda job: pytest.fail("asked again"))
    assert shape_of(job) == found
    assert JobShape.load(found.dump()) == found


def test_a_model_that_cannot_be_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hiden"):
        shape_of(make_job(tmp_path, hiden=[4]))
