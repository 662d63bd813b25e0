"""Orders to save and load, from any holder of a pserver's secret: they reach no file outside the run directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.training import make_job, serving

from elasticctr.errors import FailedPrecondition


@pytest.mark.promise(
    "a pserver is ordered to save to or load from a directory outside of its run: `..`, an absolute path, a link",
    "FailedPrecondition names the run directory; nothing is written and the shard is unchanged",
)
@pytest.mark.parametrize("op", ["save", "load"])
def test_save_and_load_stay_in_the_run_directory(op: str, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    beside = tmp_path / "run-of-another"  # the same first letters are not the same directory
    beside.mkdir()
    with serving(make_job(run, "async"), 1) as cluster:
        good = run / "checkpoints" / "one"
        cluster.save(good)
        (run / "link").symlink_to(outside)
        address = cluster.addresses[0]
        places = [outside, beside, run / ".." / "outside", run / "link", run / "link" / "..", Path("/"), Path()]
        for place in places:
            with pytest.raises(FailedPrecondition, match=f"run directory, {run}"):
                cluster.control.control(address, {"op": op, "directory": str(place)}, 30.0)
        with pytest.raises(FailedPrecondition, match="outside"):
            cluster.control.control(address, {"op": op, "directory": ""}, 30.0)
        assert not list(outside.iterdir()) and not list(beside.iterdir())
        assert cluster.control.control(address, {"op": "stats"})["is_ready"]
        cluster.load(run / "checkpoints" / ".." / "checkpoints" / "one")
