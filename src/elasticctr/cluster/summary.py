"""A run's summary, read from its files: the same figures for one process or many."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.errors import DataError, FailedPrecondition
from elasticctr.train.events import read_events


@dataclass(frozen=True, slots=True)
class RunSummary:
    """As `train.result.Result`, without needing torch to make one."""

    run_dir: Path
    step: int
    samples: int
    seconds: float
    samples_per_s: float
    metrics: dict[str, Any]  # by split
    is_finished: bool = True
    stopped_early: bool = False


def read_summary(run_dir: str | Path) -> RunSummary:
    """The summary of a run that has finished or was interrupted."""
    path = Path(run_dir)
    ends = read_events(path / "events.jsonl", "end")
    if not ends:
        raise FailedPrecondition(f"{path}: the run has not ended; continue it with --resume")
    end = ends[-1]
    reason = str(end.get("reason"))
    return RunSummary(
        path,
        int(end.get("step") or 0),
        int(end.get("samples") or 0),
        float(end.get("seconds") or 0.0),
        float(end.get("samples_per_s") or 0.0),
        _read_metrics(path / "metrics.json"),
        is_finished=reason != "interrupted",
        stopped_early=reason == "early stopping",
    )


def _read_metrics(path: Path) -> dict[str, Any]:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise DataError(f"cannot be read: {e}", path) from None
    if not isinstance(metrics, dict):
        raise DataError("expected a JSON object", path)
    return metrics
