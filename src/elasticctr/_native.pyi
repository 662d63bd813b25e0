# Generated from the built module by tools/stubs.py. Do not edit.
# ruff: noqa
from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

is_debug_build: bool = False

def xxh64(data: bytes, seed: int = 0) -> int: ...
def feature_hash(slot: str, value: bytes, seed: int = 0) -> int: ...
def crc32c(data: bytes, crc: int = 0) -> int: ...

BUCKETS: int = 4096

def bucket_of(feasign: int) -> int: ...
def shard_of(feasign: int, shards: int) -> int: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...

class LineLayout:
    def __init__(
        self, format: str, labels: Sequence[str], weight: str, slots: Sequence[tuple[str, bool, int, bool]]
    ) -> None:
        """slots: (name, is dense, dim, written as hex) each"""

    def write(
        self,
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> bytes: ...

def hash_hex_codes(
    slot: str,
    seed: int,
    codes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...

class BinaryMetrics:
    def __init__(self) -> None: ...
    def update(
        self,
        logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None: ...
    def update_scores(
        self,
        scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None: ...
    def merge(self, other: BinaryMetrics) -> None: ...
    def reset(self) -> None: ...
    def auc(self) -> float: ...
    @property
    def samples(self) -> int: ...
    @property
    def invalid_scores(self) -> int: ...
    @property
    def invalid_labels(self) -> int: ...
    @property
    def positive(self) -> float: ...
    @property
    def negative(self) -> float: ...
    @property
    def loss_sum(self) -> float: ...
    @property
    def predicted_sum(self) -> float: ...
    def roc(self, max_points: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]: ...
    def calibration(
        self, bins: int, equal_weight: bool
    ) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

class GroupAuc:
    def __init__(self) -> None: ...
    def update(
        self,
        groups: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None: ...
    def merge(self, other: GroupAuc) -> None: ...
    def compute(self) -> tuple[float, int, int, float, int]:
        """
        (auc, groups counted, groups of one class, impressions counted, invalid samples)
        """

    @property
    def samples(self) -> int: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

def exact_auc(
    scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
    | None = None,
) -> float: ...
