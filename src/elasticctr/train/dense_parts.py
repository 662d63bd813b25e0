"""`dense.<shard>.bin`: the flat dense vector and its optimizer's state in parts, as pservers save them.

docs/formats/checkpoint.md has the bytes. Knows no torch: a learner turns the vectors into its parameters.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import Corruption, FailedPrecondition

_MAGIC = b"ECTRDNS\0"
_HEADER = struct.Struct("<8sIIQQQQIIII")
_VERSION = 1
# By number; with the names of torch's optimizer state, one array of floats each.
OPTIMIZERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sgd", ()),
    ("adam", ("exp_avg", "exp_avg_sq")),
    ("adamw", ("exp_avg", "exp_avg_sq")),
    ("adagrad", ("sum",)),
)


@dataclass(frozen=True, slots=True)
class DenseVector:
    """The dense parameters of a job, one after the other, and what their optimizer remembers of each float."""

    optimizer: str
    values: NDArray[np.float32]
    state: dict[str, NDArray[np.float32]]
    steps: NDArray[np.int64]  # of each float: those of its part
    has_values: bool


def part_path(directory: Path, shard: int) -> Path:
    return directory / f"dense.{shard}.bin"


def read_dense_parts(directory: Path, floats: int) -> DenseVector:
    """All parts put together. Raises Corruption, FailedPrecondition for another number of floats."""
    paths: list[Path] = []
    while part_path(directory, len(paths)).exists():
        paths.append(part_path(directory, len(paths)))
    values = np.zeros(floats, np.float32)
    steps = np.zeros(floats, np.int64)
    state: dict[str, NDArray[np.float32]] = {}
    name, has_values, covered = "", True, 0
    for path in paths:
        data = path.read_bytes()
        kind, first, count, part_steps, has = _check(path, data, floats)
        if name and OPTIMIZERS[kind][0] != name:
            raise Corruption(f"{path}: of another optimizer than its neighbours; take an older checkpoint")
        name, names = OPTIMIZERS[kind]
        arrays = np.frombuffer(data, np.float32, offset=_HEADER.size).reshape(1 + len(names), count)
        values[first : first + count] = arrays[0]
        for state_name, array in zip(names, arrays[1:], strict=True):
            state.setdefault(state_name, np.zeros(floats, np.float32))[first : first + count] = array
        steps[first : first + count] = part_steps
        has_values &= has or count == 0
        covered += count
    if covered != floats:
        raise Corruption(f"{directory}: parts of the dense vector are missing; take an older checkpoint")
    return DenseVector(name, values, state, steps, has_values)


def write_dense_part(path: Path, vector: DenseVector) -> None:
    """The whole vector as one part."""
    kind, names = next((i, names) for i, (name, names) in enumerate(OPTIMIZERS) if name == vector.optimizer)
    arrays = [vector.values, *(vector.state[name] for name in names)]
    payload = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for array in arrays)
    floats = len(vector.values)
    steps = int(vector.steps.max(initial=0))
    about = (kind, floats, 0, floats, steps, len(names), int(vector.has_values), _native.crc32c(payload))
    head = _HEADER.pack(_MAGIC, _VERSION, *about, 0)[:-4]
    path.write_bytes(head + struct.pack("<I", _native.crc32c(head)) + payload)


def _check(path: Path, data: bytes, floats: int) -> tuple[int, int, int, int, bool]:
    advice = "take an older checkpoint"
    if len(data) < _HEADER.size:
        raise Corruption(f"{path}: cut short; {advice}")
    magic, version, kind, whole, first, count, steps, arrays, has, payload_crc, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC or _native.crc32c(data[: _HEADER.size - 4]) != crc:
        raise Corruption(f"{path}: this is not part of a dense vector, or it is damaged; {advice}")
    if version != _VERSION:
        raise FailedPrecondition(f"{path}: version {version} of the format, this program reads {_VERSION}")
    if whole != floats:
        raise FailedPrecondition(f"{path}: of a model of {whole} dense parameters, this one has {floats}")
    is_sound = kind < len(OPTIMIZERS) and arrays == len(OPTIMIZERS[kind][1]) and first + count <= floats
    if not is_sound or len(data) != _HEADER.size + 4 * count * (1 + arrays):
        raise Corruption(f"{path}: contradicts itself; {advice}")
    if _native.crc32c(data[_HEADER.size :]) != payload_crc:
        raise Corruption(f"{path}: its values fail their checksum; {advice}")
    return kind, first, count, steps, bool(has)
