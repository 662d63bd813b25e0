"""A run that was stopped goes on with more pservers, with fewer, and from and in one process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from elasticctr.errors import FailedPrecondition
from elasticctr.run import load_job, train
from elasticctr.train.checkpoint import open_checkpoint
from tests.cluster.training import Log, Training

_COMMAND = "middle of epoch .*--on local --pservers 1 --trainers 1 --resume"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.promise(
    "a single process resumes a run with pservers that was killed in the middle of an epoch",
    "FailedPrecondition names the command that resumes exactly there, with any number of pservers",
)
def test_stopped_with_two_pservers_resumed_with_three_then_one(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=28) as training:
        training.start()
        for count, part in ((3, 0.1), (1, 0.6)):
            training.wait_samples(part)
            assert training.process is not None
            training.process.send_signal(signal.SIGINT)
            training.finish(status=130)
            if open_checkpoint(training.run_dir).trainer["data"] is not None:
                with pytest.raises(FailedPrecondition, match=_COMMAND):
                    train(load_job(training.job_file, ["cluster=null"]), resume=True, quiet=True)
            training.start("--resume", "--set", f"cluster.pservers={count}")
        training.finish()
        training.check()
        assert training.rollbacks == 0


def test_an_epoch_in_one_process_and_the_next_with_pservers_and_back(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=29, epochs=3) as training:
        train(load_job(training.job_file, ["cluster=null", "train.epochs=1"]), quiet=True)
        training.start("--resume", "--set", "train.epochs=2")
        training.finish()
        result = train(load_job(training.job_file, ["cluster=null"]), resume=True, quiet=True)
        assert result.is_finished and result.samples == training.total
        training.check_every_sample_once()
        training.summary["metrics"] = result.metrics
        training.check_auc()
        training.check_nothing_left()
