"""Edges by quantile: exact while numbers fit, near their rank beyond, without missing numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.config import load_yaml, parse_settings
from elasticctr.data.quantile_edges import NumberSample
from elasticctr.data.schema import BucketSlot, Schema


def test_edges_cut_numbers_into_parts_of_one_size() -> None:
    sample = NumberSample()
    numbers = np.random.default_rng(0).permutation(1000).astype(np.float32)
    for block in np.split(numbers, 10):
        sample.add(block)
    edges = np.array(sample.edges(10))
    assert np.bincount(np.searchsorted(edges, numbers, side="right")).tolist() == pytest.approx([100] * 10, abs=1)
    repeated = NumberSample()
    repeated.add(np.array([5.0] * 90 + [7.0] * 10, dtype=np.float32))
    assert repeated.edges(8) == (5.0,)


def test_beyond_its_room_a_sample_stays_near_the_rank() -> None:
    sample = NumberSample(room=4096)
    numbers = np.random.default_rng(1).normal(size=100_000).astype(np.float32)
    for block in np.split(numbers, 20):
        sample.add(block)
    ranks = np.searchsorted(np.sort(numbers), sample.edges(16)) / len(numbers)
    # Dvoretzky, Kiefer, Wolfowitz: sqrt(ln(2 / 1e-6) / (2 * 4096)) = 0.042
    assert np.abs(ranks - np.arange(1, 16) / 16).max() < 0.042


def test_the_command_fills_the_schema_from_raw_numbers(tmp_path: Path) -> None:
    slots = [
        {"name": "ad"},
        {"kind": "dense", "name": "price", "transform": "log1p"},
        {"kind": "bucket", "name": "price_bucket", "of": "price", "by": "quantile", "count": 4},
    ]
    schema, log = tmp_path / "schema.yaml", tmp_path / "log.txt"
    schema.write_text(yaml.safe_dump({"slots": slots}))
    log.write_text("".join(f"click:0 ad:1 price:{i}\n" for i in range(100)) + "click:0 ad:1\n" * 50)
    result = CliRunner().invoke(app, ["data", "buckets", str(log), "--schema", str(schema), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["edges"] == {"price_bucket": [25.0, 50.0, 75.0]}
    filled = parse_settings(Schema, load_yaml(schema), "schema")
    (bucket,) = filled.derived
    assert isinstance(bucket, BucketSlot) and bucket.edges == (25.0, 50.0, 75.0)
    assert filled.dense[0].transform == "log1p"
    log.write_text("click:0 ad:1\n")
    result = CliRunner().invoke(app, ["data", "buckets", str(log), "--schema", str(schema), "--json"])
    assert result.exit_code != 0 and "no number" in result.output
