"""Values in the data that make gradients non-finite: refused and counted, and the job survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.training import Training, make_log

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def test_gradients_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", 6_000)
    path = log.path / "train" / "part-00001.txt"
    lines = path.read_text().splitlines()
    for number, (label, value) in enumerate([(0, "3e38"), (1, "3e38"), (0, "-3e38"), (1, "-3e38")], start=200):
        # One of them gets the worst possible prediction, with any weights.
        _, _, *rest = lines[number].split()
        lines[number] = " ".join([f"click:{label}", f"dense_feature:{value}", *rest])
    path.write_text("\n".join(lines) + "\n")
    with Training(tmp_path, log, seed=12) as training:
        training.refused = training.epochs * training.job.train.batch_size
        training.start()
        training.finish()
        training.check_ledger()
        training.check_every_sample_once()
        training.check_nothing_left()
        auc = training.summary["metrics"]["valid"]["auc"]
        assert auc is not None and auc > 0.55
