"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    run_dir: Path
    step: int
    samples: int
    trained: int  # samples of this process alone, which may have resumed
    seconds: float  # with evaluation and checkpoints
    metrics: dict[str, Any]  # by split: train (progressive), valid, test
    is_finished: bool = True  # False: interrupted, and can be resumed
    stopped_early: bool = False

    @property
    def samples_per_s(self) -> float:
        return self.trained / max(self.seconds, 1e-9)
