"""A job of ours for benchmarks/quality_peers.py, as run by `elasticctr train`: the text is read again in each epoch."""

from __future__ import annotations

from typing import Any

import yaml
from quality_order import Laps, Order, answer

import elasticctr
from elasticctr.train.job import load_job
from elasticctr.train.learner import Learner
from elasticctr.train.trainer import Trainer


def train(order: Order, laps: Laps) -> dict[str, Any]:
    path = order.folder / "job.yaml"
    path.write_text(yaml.safe_dump({**order.job, "run_dir": str(order.folder / "run")}))

    def note(learner: Learner, step: int, is_epoch_end: bool) -> None:
        if is_epoch_end:
            laps.end_epoch()

    trainer = Trainer(load_job(path), quiet=True, on_step=note)
    laps.start()
    valid = trainer.run().metrics["valid"]
    return {"auc": valid["auc"], "logloss": valid["logloss"], "version": elasticctr.__version__}


if __name__ == "__main__":
    answer(train)
