"""Publishers killed with -9 at any moment, and two at a time: no announced version is lost, torn or numbered twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from elasticctr.versions import Repository
from elasticctr.versions.sparse import get_rows
from elasticctr.versions.verification import _check_table, check_digest
from tests.cluster.publishing import MODEL, ROWS, publish_next
from tests.unit.versions.synthetic import row_values

ROOT = Path(__file__).parents[2]


def start(repo: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster.publishing", str(repo)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def check(repository: Repository) -> None:
    """Every existing version is complete, and the live one's rows are those of its chain."""
    for manifest in repository.versions(MODEL):
        for file in manifest.files:
            check_digest(repository, manifest, file)
        for table in manifest.tables:
            _check_table(repository, manifest, table)
    chain = repository.chain(MODEL, repository.live(MODEL).version)
    asked = np.arange(ROWS, dtype=np.uint64)
    rows, found = get_rows(repository, chain, "main", asked)
    assert found.all()
    expected = row_values(chain[0].version, asked)
    for manifest in chain[1:]:
        changed = asked[manifest.version % 7 :: 7]
        expected[manifest.version % 7 :: 7] = row_values(manifest.version, changed)
    assert np.array_equal(rows, expected)


@pytest.mark.slow
@pytest.mark.parametrize("publishers", [1, 2])
def test_publishers_killed_at_any_moment(tmp_path: Path, publishers: int) -> None:
    repository = Repository(str(tmp_path / "repo"))
    chance = random.Random(publishers)
    announced = 0
    for _ in range(8):
        processes = [start(tmp_path / "repo") for _ in range(publishers)]
        try:
            seen = [int(process.stdout.readline()) for process in processes if process.stdout is not None]
            time.sleep(chance.random() * 0.3)
        finally:
            for process in processes:
                process.kill()
        said = [int(line) for p in processes for line in p.communicate()[0].splitlines() if line.endswith(("\n", ""))]
        versions = [event.version for event in repository.events(MODEL)]
        assert len(set(versions)) == len(versions) and versions == sorted(versions)
        assert set(seen) <= set(versions) and set(said[:-1]) <= set(versions)
        live = repository.live(MODEL).version
        assert live == versions[-1] >= max([announced, *seen])
        announced = live
        check(repository)
    # The next one takes over a dead process' lock and removes what it left, but for what is complete and has no line.
    assert publish_next(repository) > announced
    there = {path for path in (tmp_path / "repo" / MODEL).iterdir() if path.name.isdigit()}
    known = {str(manifest.version) for manifest in repository.versions(MODEL)}
    assert known <= {path.name for path in there}
    assert all((path / "manifest.json").exists() for path in there)
    check(repository)
