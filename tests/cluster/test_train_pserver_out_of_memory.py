"""More distinct feasigns than a pserver has memory for: the run is saved and ends before the pserver dies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from elasticctr.train.checkpoint import list_checkpoints
from tests.cluster.training import Log, Training

_LINES, _VALUES = 40_000, 60


def make_wide_log(path: Path) -> Log:
    """Nearly every feasign occurs once."""
    draw = random.Random(1)
    for name, lines in (("train", _LINES), ("valid", 10)):
        (path / name).mkdir(parents=True)
        with (path / name / "part-00000").open("w") as out:
            for number in range(lines):
                values = " ".join(f"user:{draw.getrandbits(62)}" for _ in range(_VALUES))
                out.write(f"click:{number % 3 == 0:d} {values}\n")
    (path / "schema.yaml").write_text("slots:\n  - {name: user, max_values: 64}\n")
    return Log(path, _LINES)


@pytest.mark.slow
@pytest.mark.promise(
    "a pserver runs out of memory: millions of feasigns, no admission",
    "the run saves a checkpoint and ends with an error that names the limit and what helps; no restarts into the "
    "same death",
)
def test_the_run_is_saved_and_ends_before_the_pserver_dies(tmp_path: Path) -> None:
    with Training(
        tmp_path,
        make_wide_log(tmp_path / "log"),
        epochs=1,
        pservers=1,
        trainers=1,
        pserver_memory_mib=250,
        model__wide="sparse",
    ) as training:
        training.start()
        training.finish(status=15)
        said = training.output.read_text()
        assert "pserver-0: shard 0 has" in said and "cluster.pserver_memory_mib" in said, said[-2000:]
        assert "--resume" in said and "sparse.admission" in said
        assert training.restarts("pserver-0") == 0
        assert list_checkpoints(training.run_dir / "checkpoints")
        training.check_nothing_left()
