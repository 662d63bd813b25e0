"""One run of admission.py in a separate process, so that peak memory is that of the run.

Trains one epoch without checkpoints, evaluates, and prints one line of JSON: rows, bytes, AUC, seconds. With
`encodings`, also the AUC of the rows as a published version holds them.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from typing import Any

import numpy as np

from elasticctr.publish import dense
from elasticctr.train.evaluation import evaluate
from elasticctr.train.job import Job
from elasticctr.train.learner import Learner
from elasticctr.train.metrics.metrics import Metrics
from elasticctr.train.reading import open_dataset, read_ahead
from elasticctr.versions.encoding import decode_rows, encode_rows, row_bytes
from elasticctr.versions.manifest import Encoding
from elasticctr.versions.scoring import make_inputs

ENCODINGS: tuple[Encoding, ...] = ("fp32", "fp16", "int8")
BATCH = 4096
ENCODED_BATCHES = 16  # of the validation data: the reference path is slow


def run(job: Job, *, is_encoded: bool) -> dict[str, Any]:
    learner = Learner(job)
    train = open_dataset(job.data.train, job.samples, seed=job.train.seed)
    began = time.perf_counter()
    samples = 0
    for item in read_ahead(train, learner.look_up, batch_size=job.train.batch_size):
        learner.step(item)
        samples += len(item.batch)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert job.data.valid is not None
    metrics = evaluate(learner, open_dataset(job.data.valid, job.samples), batch_size=BATCH, quiet=True)
    stats = [table.stats() for table in learner.sparse.tables]
    table_bytes = sum(s.row_bytes + s.index_bytes + s.pending_bytes for s in stats)
    result = {
        "rows": sum(s.rows for s in stats),
        "pending": sum(s.pending for s in stats),
        "table_bytes": table_bytes,
        "peak_bytes": peak,
        "samples": samples,
        "samples_per_s": samples / seconds,
        "auc": metrics["auc"],
        "logloss": metrics["logloss"],
        "train_auc": learner.metrics.compute().auc,
    }
    return result | ({"encodings": score_encodings(learner, job)} if is_encoded else {})


def score_encodings(learner: Learner, job: Job) -> dict[str, dict[str, float]]:
    """Scores a batch from rows that were encoded and decoded as in publishing."""
    schema = dense.make_serving_schema(learner, job.samples)
    tables = {table.settings.name: table for table in learner.sparse.tables}
    assert job.data.valid is not None
    metrics = {encoding: Metrics() for encoding in ENCODINGS}
    batches = open_dataset(job.data.valid, job.samples).iterate(batch_size=BATCH)
    for batch in itertools.islice(batches, ENCODED_BATCHES):
        for encoding in ENCODINGS:

            def rows(name: str, feasigns: Any, encoding: Encoding = encoding) -> tuple[Any, Any]:
                found = tables[name].get(feasigns)
                return decode_rows(encode_rows(found.weights, encoding), encoding), found.found

            scores = dense.score_inputs(learner, make_inputs(schema, batch, rows))[:, 0].astype(np.float64)
            logits = np.log(scores) - np.log1p(-scores)
            metrics[encoding].update(logits.astype(np.float32), batch.labels[:, 0], batch.weights)
    (table,) = tables.values()
    floats = sum(segment.dim for segment in table.settings.segments)
    return {
        encoding: {"auc": float(values.compute().auc or 0.0), "row_bytes": float(row_bytes(encoding, floats))}
        for encoding, values in metrics.items()
    }


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    print(json.dumps(run(Job.model_validate(asked["job"]), is_encoded=asked["is_encoded"])))
