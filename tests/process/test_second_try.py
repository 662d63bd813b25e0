"""tools/run_tests.sh on a small project of its own: which tests are retried, and what a skip means in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORY = """
import pathlib
import pytest
@pytest.mark.slow
def test_unsteady():
    seen = pathlib.Path("seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("tools/run_tests.sh", "tests/conftest.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for folder in ("cluster", "unit"):
        (tmp_path / "tests" / folder).mkdir()
    (tmp_path / "tests/cluster/test_story.py").write_text(STORY)
    return tmp_path


def run(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {k: v for k, v in os.environ.items() if not k.startswith(("ELASTICCTR", "PYTEST"))}
    command = [str(project / "tools" / "run_tests.sh")]
    return subprocess.run(
        command, env={**known, "WORKERS": "1", **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_story_is_tried_once_more_and_named(project: Path) -> None:
    done = run(project, SECOND_TRIES=str(project / "tries"))
    assert done.returncode == 0, done.stdout + done.stderr
    line = "second try, passed: tests/cluster/test_story.py::test_unsteady\n"
    assert done.stdout.endswith(line) and (project / "tries").read_text() == line


@pytest.mark.slow
def test_a_unit_test_is_never_tried_twice(project: Path) -> None:
    (project / "tests/unit/test_unsteady.py").write_text(STORY.replace('"seen"', '"also_seen"'))
    done = run(project)
    assert done.returncode == 1 and "No second try: a test that is not a story failed." in done.stdout
    assert "second try, " not in done.stdout


@pytest.mark.slow
def test_a_skip_is_a_failure_in_ci_unless_hardware_is_missing(project: Path) -> None:
    (project / "seen").touch()
    (project / "tests/unit/test_skipped.py").write_text(
        'import pytest\ndef test_gpu():\n    pytest.skip("no GPU here")\n'
        'def test_server():\n    pytest.skip("no Redis here")\n'
    )
    (project / "tests/unit/test_module.py").write_text('import pytest\npytest.importorskip("no_such_package")\n')
    assert run(project).returncode == 0
    done = run(project, ELASTICCTR_CI="1")
    assert done.returncode != 0 and "no Redis here" in done.stdout and "no_such_package" in done.stdout
    assert "test_gpu: skipped in CI" not in done.stdout
