"""The event log: what is written comes back, torn lines and resumed runs included."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import DataError, InternalError, NotFound
from elasticctr.train.events import EventWriter, read_events


def write_steps(path: Path, steps: Iterable[int], resume_step: int | None = None) -> None:
    with EventWriter(path, resume_step) as events:
        for step in steps:
            events.write("train", step, step * 10, 1, {"loss": 1 / (step + 1)})


def test_events_come_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.jsonl"
    with EventWriter(path) as events:
        events.write("train", 1, 512, 1, {"loss": np.float32(0.5), "auc": float("nan"), "rows": np.int64(3)})
        events.write("eval", 1, 512, 1, {"split": "test", "auc": None, "path": path, "list": np.arange(2)})
    first, second = read_events(path)
    assert first.pop("time") > 1.6e9
    assert first == {"event": "train", "step": 1, "epoch": 1, "samples": 512, "loss": 0.5, "auc": None, "rows": 3}
    assert second["path"] == str(path) and second["list"] == [0, 1]
    assert [e["event"] for e in read_events(path, "eval")] == ["eval"]


def test_each_line_is_there_before_close(tmp_path: Path) -> None:
    events = EventWriter(tmp_path / "e.jsonl")
    events.write("train", 1, 1, 1, {})
    assert len(read_events(tmp_path / "e.jsonl")) == 1
    events.close()
    events.close()


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "e.jsonl"
    write_steps(path, [1, 2, 3])
    path.write_bytes(path.read_bytes()[:-cut])
    assert [e["step"] for e in read_events(path)] == [1, 2]
    write_steps(path, [3], resume_step=2)
    assert [e["step"] for e in read_events(path)] == [1, 2, 3]


def test_resuming_cuts_what_will_happen_again(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_steps(path, range(1, 8))
    write_steps(path, [5, 6], resume_step=4)
    assert [e["step"] for e in read_events(path)] == [1, 2, 3, 4, 5, 6]
    assert not (tmp_path / "e.jsonl.part").exists()


def test_a_new_run_starts_an_empty_log_and_resuming_nothing_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_steps(path, [1])
    write_steps(path, [9])
    assert [e["step"] for e in read_events(path)] == [9]
    write_steps(tmp_path / "other.jsonl", [5], resume_step=4)
    assert [e["step"] for e in read_events(tmp_path / "other.jsonl")] == [5]


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff\xfe", b'{"step": 1}', b"7"])
def test_damage_in_the_middle_names_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "e.jsonl"
    write_steps(path, [1, 2])
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, second, b""]))
    with pytest.raises(DataError, match=r"e\.jsonl:2: "):
        read_events(path)


def test_a_missing_log_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="run directory"):
        read_events(tmp_path / "e.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_typed_error() -> None:
    events = EventWriter("/dev/full", resume_step=None)
    with pytest.raises(InternalError, match="No space left"):
        events.write("train", 1, 1, 1, {})
