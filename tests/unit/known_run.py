"""A click log whose truth is known, and a small run on it, for tests of evaluation and explanation.

The logit of a click is the sum of what `strong` and `weak` weigh, and of the dense float `price`. `noise` says nothing,
`twin` repeats `strong` under other feasigns, `constant` has one value, `absent` is never there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.train.job import Job
from elasticctr.train.trainer import Trainer

SLOTS = ("strong", "weak", "noise", "twin", "constant", "absent")
STRONG = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
WEAK = np.array([-0.4, 0.4])


def write_log(path: Path, samples: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    strong, weak = random.integers(0, 5, samples), random.integers(0, 2, samples)
    noise = random.integers(0, 8, samples)
    price = random.normal(size=samples)
    logit = STRONG[strong] + WEAK[weak] + 0.5 * price - 0.5
    clicks = random.random(samples) < 1 / (1 + np.exp(-logit))
    path.write_text(
        "".join(
            f"click:{int(c)} strong:{s + 1} weak:{w + 11} noise:{n + 21} twin:{s + 31} constant:41 price:{x:.4f}\n"
            for c, s, w, n, x in zip(clicks, strong, weak, noise, price, strict=True)
        )
    )


def make_known_run(directory: Path, *, model: str = "lr", seed: int = 0, **options: Any) -> Path:
    """Trains on 6,000 samples and tests on 3,000; returns the run directory."""
    directory.mkdir(parents=True, exist_ok=True)
    write_log(directory / "train.txt", 6000, 1)
    write_log(directory / "test.txt", 3000, 2)
    job = Job.model_validate(
        {
            "run_dir": str(directory / "run"),
            "schema": {"slots": [*({"name": name} for name in SLOTS), {"kind": "dense", "name": "price", "dim": 1}]},
            "data": {"train": str(directory / "train.txt"), "test": str(directory / "test.txt")},
            "model": {"name": model, **options},
            "sparse": {"optimizer": {"name": "adam", "learning_rate": 0.02}},
            "dense": {"learning_rate": 0.02},
            "train": {"batch_size": 100, "epochs": 3, "threads": 1, "seed": seed},
        }
    )
    return Trainer(job, quiet=True).run().run_dir
