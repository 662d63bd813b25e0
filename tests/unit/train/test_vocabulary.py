"""A run with a vocabulary: rows for it and for each slot's other values, nothing else; a resumed run has the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from elasticctr.data.vocabulary import oov_feasign
from elasticctr.errors import NotFound
from elasticctr.train.job import Job
from elasticctr.train.loading import load_learner
from elasticctr.train.trainer import Trainer
from elasticctr.train.vocabulary import find_vocabulary


def test_rows_are_the_vocabulary_and_one_per_slot(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ads = (random.random(400) ** 3 * 90).astype(int) + 1
    log = tmp_path / "log.txt"
    log.write_text("".join(f"click:{i % 2} ad:{ad} user:{1000 + ad % 7}\n" for i, ad in enumerate(ads)))
    job = Job.model_validate(
        {
            "run_dir": str(tmp_path / "run"),
            "schema": {"slots": [{"name": "ad"}, {"name": "user"}]},
            "data": {"train": str(log)},
            "model": {"name": "dnn", "dim": 4, "hidden": [4]},
            "sparse": {"vocabulary": {"min_count": 5}},
            "train": {"threads": 1, "batch_size": 64},
        }
    )
    Trainer(job, quiet=True).run()
    counts = Counter([*ads.tolist(), *(1000 + ads % 7).tolist()])
    kept = {feasign for feasign, n in counts.items() if n >= 5}
    assert 0 < len(kept) < len(counts)
    learner, _ = load_learner(tmp_path / "run")
    (table,) = learner.sparse.tables
    rows = {feasign for chunk in table.rows() for feasign in chunk.feasigns.tolist()}
    assert rows == kept | {oov_feasign("ad", 0)}
    found = find_vocabulary(job, resume=True)
    assert found is not None and set(found.tables["main"].tolist()) == kept
    (tmp_path / "run" / "vocabulary.bin").unlink()
    with pytest.raises(NotFound):
        find_vocabulary(job, resume=True)
