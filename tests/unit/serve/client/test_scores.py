"""Scores are written as text, Parquet and several labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from elasticctr.errors import ConfigError
from elasticctr.serve.client.scores import write_scores

SCORES = {0: np.array([0.1, 0.2], np.float32), 1: None, 2: np.array([0.3], np.float32)}


def test_text(tmp_path: Path) -> None:
    write_scores(tmp_path / "new" / "scores.txt", [2, 1, 1], SCORES, ())
    lines = (tmp_path / "new" / "scores.txt").read_text().splitlines()
    assert [np.float32(line) for line in lines[:2]] == [np.float32(0.1), np.float32(0.2)]
    assert lines[2] == "nan"
    assert np.float32(lines[3]) == np.float32(0.3)


def test_parquet(tmp_path: Path) -> None:
    write_scores(tmp_path / "scores.parquet", [2, 1, 1], SCORES, ())
    column = pq.read_table(tmp_path / "scores.parquet").column("score")
    assert column.null_count == 1
    assert column.to_pylist()[3] == pytest.approx(0.3)


def test_several_labels(tmp_path: Path) -> None:
    both = {0: np.array([[0.1, 0.5]], np.float32), 1: None}
    write_scores(tmp_path / "s.txt", [1, 2], both, ("click", "buy"))
    assert (tmp_path / "s.txt").read_text().splitlines()[1] == "nan\tnan"
    write_scores(tmp_path / "s.parquet", [1, 2], both, ("click", "buy"))
    assert pq.read_table(tmp_path / "s.parquet").column_names == ["score_click", "score_buy"]


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        write_scores(tmp_path, [], {}, ())
