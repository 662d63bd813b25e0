"""The worlds of tests/unit/ps, with coordinators as separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.unit.ps.conftest import World, find_url, world

from elasticctr.ps.identity import job_identity
from elasticctr.ps.shape import JobShape
from elasticctr.train.job import Job

__all__ = ["world"]


class ProcessWorld(World):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_process(self) -> subprocess.Popen[bytes]:
        """The coordinator as a separate process, which can be killed."""
        job_file = Path(self.job.run_dir).parent / "job.yaml"
        job_file.write_text(yaml.safe_dump(self.job.model_dump(mode="json", by_alias=True)))
        Path(self.job.run_dir).mkdir(exist_ok=True)
        shape = JobShape((), 0, {"schema": "s", "model": "lr", "options": {}}).dump()
        kept = Path(self.job.run_dir) / f"shape-{job_identity(self.job).digest[:16]}.json"
        kept.write_text(json.dumps(shape))  # no torch for it
        before = find_url(self.job.run_dir)
        command = [sys.executable, "-m", "elasticctr", "coordinator", "--config", str(job_file), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._processes.append(process)
        self.wait_for(lambda: process.poll() is not None or find_url(self.job.run_dir) != before)
        self.url = find_url(self.job.run_dir)
        return process

    def close(self) -> None:
        super().close()
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def world_class() -> type[World]:
    return ProcessWorld
