"""Progress lines name speed, loss, AUC, memory and time left."""

import io

import pytest
from rich.console import Console

from elasticctr.train.progress import Figures, TrainingProgress


def show(progress: TrainingProgress, samples: int, total: int | None) -> None:
    progress.show(Figures(0, samples // 10, samples, 0.5, 0.75, 1234.0), total)


def test_plain_lines_say_speed_loss_auc_memory_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("elasticctr.train.progress.time.monotonic", lambda: float(next(now)))
    with TrainingProgress() as progress:
        progress._console = Console(file=out, width=200)
        show(progress, 100, 1000)
        show(progress, 400, 1000)
        progress.note("valid: auc 0.7")
    first, second, note = out.getvalue().splitlines()
    assert "left" not in first
    for part in ("epoch 1", "step 40", "400 samples", "1,234/s", "loss 0.5000", "auc 0.7500", "GiB", "s left"):
        assert part in second
    assert note == "valid: auc 0.7"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(quiet=True) as progress:
        assert not progress.is_due
        show(progress, 100, None)
        progress.note("x")
    assert capsys.readouterr() == ("", "")
