"""Example 1 from Python: `python train.py LOG` with the log that example 1 made."""

import sys

from elasticctr.config import load_yaml
from elasticctr.run import Job, train

log = sys.argv[1]
job = Job(
    schema=load_yaml(f"{log}/schema.yaml"),
    run_dir="runs/python",
    data={
        "train": {"path": f"{log}/part-*", "fraction": [0.0, 0.9]},
        "valid": {"path": f"{log}/part-*", "fraction": [0.9, 1.0]},
    },
    model={"name": "dcnv2", "dim": 8, "hidden": [64, 32]},
)
result = train(job)
print(f"AUC {result.metrics['valid']['auc']:.4f} after {result.samples:,} samples")
