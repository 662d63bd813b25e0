"""Small jobs with a cluster section, and the fake roles to run them with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from elasticctr.train.job import Job

FAKE = (sys.executable, str(Path(__file__).with_name("fake_roles.py")))


def make_job(run: Path, **cluster: Any) -> Job:
    settings: dict[str, Any] = {
        "run_dir": str(run),
        "schema": {"slots": [{"name": "ad"}]},
        "data": {"train": str(run / "log.txt")},
        "cluster": {"trainers": 2, "pservers": 2, **cluster},
    }
    return Job.model_validate(settings)
