"""Dense parameters in parts: back into a learner, optimizer state included, and the next step is the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.train.test_learner import make_items, make_learner

from elasticctr.errors import Corruption, FailedPrecondition
from elasticctr.train.checkpoint import Checkpoint
from elasticctr.train.dense_parts import DenseVector, part_path, read_dense_parts, write_dense_part


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adagrad", "sgd"])
def test_a_learner_goes_on_from_parts_as_from_dense_pt(tmp_path: Path, optimizer: str) -> None:
    dense = {"optimizer": optimizer, "learning_rate": 0.01, "weight_decay": 0.1}
    learner = make_learner(tmp_path, "dnn", **dense)
    items = make_items(learner, 6)
    for item in items[:5]:
        learner.step(item)
    vector = learner.dense_vector()
    assert int(vector.steps.max()) == (0 if optimizer == "sgd" else 5)
    write_dense_part(part_path(tmp_path, 0), vector)
    other = make_learner(tmp_path, "dnn", **dense)
    other.load_dense(Checkpoint(tmp_path, 5, {}))
    for table, copy in zip(learner.sparse.tables, other.sparse.tables, strict=True):
        table.save(tmp_path / "rows")
        copy.load(tmp_path / "rows")
    assert torch.equal(other.flat_dense(), learner.flat_dense())
    losses = [one.step(items[5]) for one in (learner, other)]
    assert losses[0] == losses[1]
    assert torch.equal(other.flat_dense(), learner.flat_dense())
    assert not np.array_equal(other.flat_dense().numpy(), vector.values)


def test_parts_of_several_pservers_are_one_vector(tmp_path: Path) -> None:
    floats = 40
    values = np.arange(floats, dtype=np.float32)
    for shard, (first, last) in enumerate([(0, 16), (16, 32), (32, 40)]):
        write_raw(part_path(tmp_path, shard), floats, first, values[first:last], steps=shard + 5)
    vector = read_dense_parts(tmp_path, floats)
    assert np.array_equal(vector.values, values) and np.array_equal(vector.state["sum"], values + 100)
    assert vector.steps[[0, 16, 39]].tolist() == [5, 6, 7]
    part_path(tmp_path, 2).unlink()
    with pytest.raises(Corruption, match="parts of the dense vector are missing"):
        read_dense_parts(tmp_path, floats)
    with pytest.raises(FailedPrecondition, match="of a model of 40 dense parameters, this one has 41"):
        read_dense_parts(tmp_path, 41)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    values = np.ones(50, np.float32)
    path = part_path(tmp_path, 0)
    write_dense_part(
        path, DenseVector("adam", values, {"exp_avg": values, "exp_avg_sq": values}, values.astype(int), True)
    )
    data = path.read_bytes()
    random_ = random.Random(1)
    for _ in range(300):
        flipped = bytearray(data)
        flipped[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(Corruption):
            read_dense_parts(tmp_path, 50)
    for size in (0, 63, 64, len(data) - 1, len(data) + 1):
        path.write_bytes((data + b"x")[:size])
        with pytest.raises(Corruption):
            read_dense_parts(tmp_path, 50)


def write_raw(path: Path, floats: int, first: int, values: np.ndarray, steps: int) -> None:
    """A part as docs/formats/checkpoint.md says, written by other code than the one that is tested."""
    import struct

    from elasticctr import _native

    payload = values.tobytes() + (values + 100).tobytes()
    crc = _native.crc32c(payload)
    head = struct.pack("<8sIIQQQQIII", b"ECTRDNS\0", 1, 3, floats, first, len(values), steps, 1, 1, crc)
    path.write_bytes(head + struct.pack("<I", _native.crc32c(head)) + payload)
