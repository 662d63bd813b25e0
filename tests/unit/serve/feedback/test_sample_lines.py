"""Logged samples become lines that the trainer's parser reads back as the same features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import Schema
from elasticctr.errors import ConfigError
from elasticctr.serve.feedback.log import LoggedRequest, LoggedSample
from elasticctr.serve.feedback.sample_lines import SampleLines

BIG = 2**64 - 1


def request(
    shared: dict[str, list[int]], *samples: tuple[dict[str, list[int]], dict[str, list[float]]], model: str = "ctr"
) -> LoggedRequest:
    logged = [LoggedSample(slots, dense, [0.5]) for slots, dense in samples]
    return LoggedRequest(1.0, "id", model, 1, "live", "json", "", 0, None, shared, logged, False)


def parse(format: str, slots: list[dict[str, Any]], lines: list[bytes]) -> Any:
    schema = Schema.model_validate({"format": format, "slots": slots})
    parsed = Parser(schema, threads=1).parse(b"".join(lines))
    assert parsed.bad == []
    return parsed.batch


@pytest.mark.parametrize("format", ["feasign", "slot"])
def test_shared_and_own_slots_are_read_back(format: str) -> None:
    made = SampleLines(format, None, "click")
    features = made.features(request({"user": [BIG, 1]}, ({"ad": [5]}, {}), ({}, {}), ({"ad": [6, 7]}, {})))
    lines = [made.line(text, is_clicked) for text, is_clicked in zip(features, (True, False, True), strict=True)]
    batch = parse(format, [{"name": "user"}, {"name": "ad"}], lines)
    assert batch.labels[:, 0].tolist() == [1, 0, 1]
    assert batch.slot(0)[0].tolist() == [BIG, 1] * 3 and batch.slot(1)[0].tolist() == [5, 6, 7]
    assert np.diff(batch.slot(1)[1]).tolist() == [1, 0, 2]


def test_a_slot_of_a_sample_replaces_the_shared_one() -> None:
    made = SampleLines("slot", None, "click")
    features = made.features(request({"user": [1], "ad": [2]}, ({"ad": [3]}, {}), ({"ad": []}, {})))
    batch = parse("slot", [{"name": "user"}, {"name": "ad"}], [made.line(text, False) for text in features])
    assert batch.slot(0)[0].tolist() == [1, 1] and batch.slot(1)[0].tolist() == [3]


def test_dense_floats_keep_every_bit_and_choose_the_slot_format() -> None:
    made = SampleLines(None, None, "click")
    floats = [0.1, -1e-30, 3e38]
    features = made.features(request({}, ({"ad": [1]}, {"x": floats})))
    assert made.format == "slot"
    batch = parse("slot", [{"name": "ad"}, {"kind": "dense", "name": "x", "dim": 3}], [made.line(features[0], True)])
    assert batch.dense.tolist() == np.array([floats], np.float32).tolist()


def test_without_dense_floats_the_format_is_feasign() -> None:
    made = SampleLines(None, None, "click")
    assert made.features(request({}, ({"ad": [1]}, {}))) == ["1:ad"] and made.format == "feasign"
    assert made.line("1:ad", True) == b"1 1 1:ad\n" and made.line("", False) == b"1 0\n"


def test_a_missing_number_is_left_out_and_a_zero_is_not() -> None:
    made = SampleLines("slot", None, "click")
    assert made.features(request({}, ({}, {"x": [-0.0], "y": [0.0]}))) == ["y:0.0"]


def test_what_a_format_cannot_hold_is_said() -> None:
    with pytest.raises(ConfigError, match="'x'"):
        SampleLines("feasign", None, "click").features(request({}, ({}, {"x": [1.0]})))
    for name in ("a b", "a:b", ""):
        with pytest.raises(ConfigError):
            SampleLines("slot", None, "click").features(request({name: [1]}, ({}, {})))
    with pytest.raises(ConfigError):
        SampleLines("slot", None, "a label")
    with pytest.raises(ConfigError, match="'csv'"):
        SampleLines("csv", None, "click")


def test_samples_of_two_models_do_not_mix() -> None:
    named = SampleLines(None, "ctr", "click")
    assert named.takes(request({}, ({}, {}))) and not named.takes(request({}, ({}, {}), model="other"))
    first = SampleLines(None, None, "click")
    assert first.takes(request({}, ({}, {})))
    with pytest.raises(ConfigError, match="'other'"):
        first.takes(request({}, ({}, {}), model="other"))
