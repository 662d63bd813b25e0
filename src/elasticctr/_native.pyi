# Generated from the built module by tools/stubs.py. Do not edit.
# ruff: noqa
from typing import Any
from collections.abc import Sequence
import enum
from typing import Annotated, Any, overload

import numpy
import numpy.typing
from numpy.typing import NDArray

is_debug_build: bool = False

def xxh64(data: bytes, seed: int = 0) -> int: ...
def feature_hash(slot: str, value: bytes, seed: int = 0) -> int: ...
def crc32c(data: bytes, crc: int = 0) -> int: ...
def tls_library() -> str:
    """
    The library that does TLS, such as 'OpenSSL 3.0.15'; empty: built without.
    """

BUCKETS: int = 4096

WIRE_BUILD: int = 4

def bucket_of(feasign: int) -> int: ...
def shard_of(feasign: int, shards: int) -> int: ...
def shards_of(
    feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    shards: int,
) -> NDArray[numpy.uint16]: ...
def raise_error(code: int, message: str) -> None:
    """Throws the native error of a code: how tests reach every one."""

def keep_freed_memory() -> None: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...

class TextFormat(enum.Enum):
    FEASIGN = 0

    SLOT = 1

    CRITEO = 2

    LIBSVM = 3

    LIBFFM = 4

class Transform(enum.Enum):
    NONE = 0

    LOG1P = 1

    SCALE = 2

class SparseSpec:
    def __init__(self, name: str, hashed: bool, keep_last: bool, max_values: int, hashed_as: str = "") -> None: ...

class DenseSpec:
    def __init__(
        self,
        name: str,
        dim: int,
        transform: Transform,
        min: Sequence[float],
        diff: Sequence[float],
        marks_missing: bool = False,
    ) -> None: ...

class ParserSpec:
    def __init__(
        self,
        format: TextFormat,
        labels: Sequence[str],
        weight: str,
        sparse: Sequence[SparseSpec],
        dense: Sequence[DenseSpec],
        hash_seed: int,
        require_label: bool,
    ) -> None: ...

class Split:
    def __init__(self, lo: float, hi: float, seed: int) -> None: ...
    def keeps(self, line: bytes) -> bool: ...

class BadLine:
    @property
    def line(self) -> int: ...
    @property
    def reason(self) -> str: ...

class Block:
    @property
    def labels(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]: ...
    @property
    def dense(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]: ...
    @property
    def weights(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]: ...
    @property
    def shows(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]: ...
    @property
    def values(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...
    @property
    def offsets(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...
    @property
    def lines(self) -> int: ...
    @property
    def next_line(self) -> int: ...
    @property
    def bad_count(self) -> int: ...
    @property
    def bad(self) -> list[BadLine]: ...

class Parser:
    def __init__(self, spec: ParserSpec, split: Split, threads: int) -> None: ...
    def parse(self, text: bytes | bytearray | memoryview, first_line: int = 1) -> Block: ...

def cut_lines(text: bytes | bytearray | memoryview) -> tuple[int, int]: ...
def take_bags(
    values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    n: int,
    rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> tuple[
    Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
]: ...
def slice_bags(
    values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    n: int,
    start: int,
    stop: int,
) -> tuple[
    Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
]: ...
def concat_bags(
    values: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    offsets: Sequence[Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    ns: Sequence[int],
) -> tuple[
    Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
]: ...
def hash_strings(
    offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    slot: str,
    seed: int,
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...
def checksum(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> int: ...
def hash_lines(
    text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)], seed: int
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...
def hash_rows(
    labels: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    dense: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    seed: int,
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...

class BagColumns:
    def __init__(
        self,
        values: Sequence[
            Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        ],
        offsets: Sequence[
            Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        ],
    ) -> None: ...
    def slice(
        self, start: int, stop: int
    ) -> tuple[
        Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
    ]: ...

class DerivedSpec:
    @staticmethod
    def cross(name: str, parts: Sequence[int], max_values: int, keep_last: bool) -> DerivedSpec: ...
    @staticmethod
    def bucket(name: str, dense: int, index: int, edges: Sequence[float]) -> DerivedSpec: ...

class Deriver:
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, samples: ParserSpec, slots: Sequence[DerivedSpec]) -> None: ...
    def derive(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ) -> tuple[
        Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
    ]: ...

class FeasignCounter:
    def __init__(self) -> None: ...
    def add(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def take(self, min_count: int) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...
    @property
    def total(self) -> int: ...
    def __len__(self) -> int: ...

class FeasignSet:
    def __init__(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def replace(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu")],
        first: int,
        last: int,
        other: int,
    ) -> int: ...
    def __contains__(self, feasign: int) -> bool: ...
    def __len__(self) -> int: ...

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

class OptimizerKind(enum.Enum):
    sgd = 0

    adagrad = 1

    rowwise_adagrad = 2

    adam = 3

    ftrl = 4

class OptimizerSettings:
    def __init__(self) -> None: ...
    @property
    def kind(self) -> OptimizerKind: ...
    @kind.setter
    def kind(self, arg: OptimizerKind, /) -> None: ...
    @property
    def learning_rate(self) -> float: ...
    @learning_rate.setter
    def learning_rate(self, arg: float, /) -> None: ...
    @property
    def epsilon(self) -> float: ...
    @epsilon.setter
    def epsilon(self, arg: float, /) -> None: ...
    @property
    def beta1(self) -> float: ...
    @beta1.setter
    def beta1(self, arg: float, /) -> None: ...
    @property
    def beta2(self) -> float: ...
    @beta2.setter
    def beta2(self, arg: float, /) -> None: ...
    @property
    def beta(self) -> float: ...
    @beta.setter
    def beta(self, arg: float, /) -> None: ...
    @property
    def initial_accumulator(self) -> float: ...
    @initial_accumulator.setter
    def initial_accumulator(self, arg: float, /) -> None: ...
    @property
    def l1(self) -> float: ...
    @l1.setter
    def l1(self, arg: float, /) -> None: ...
    @property
    def l2(self) -> float: ...
    @l2.setter
    def l2(self, arg: float, /) -> None: ...
    @property
    def gradient_clip(self) -> float: ...
    @gradient_clip.setter
    def gradient_clip(self, arg: float, /) -> None: ...
    @property
    def weight_bound(self) -> float: ...
    @weight_bound.setter
    def weight_bound(self, arg: float, /) -> None: ...
    @property
    def catch_up(self) -> int: ...
    @catch_up.setter
    def catch_up(self, arg: int, /) -> None: ...

class InitializerKind(enum.Enum):
    zeros = 0

    constant = 1

    uniform = 2

    normal = 3

class InitializerSettings:
    def __init__(self, kind: InitializerKind, a: float = 0.0, b: float = 0.0) -> None: ...

class SegmentSettings:
    def __init__(self, name: str, dim: int, optimizer: OptimizerSettings, initializer: InitializerSettings) -> None: ...

class Lookup:
    def __init__(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        samples: int,
        slots: Sequence[int],
    ) -> None: ...
    @property
    def samples(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def occurrences(self) -> int: ...
    @property
    def distinct(self) -> int: ...
    @property
    def is_single_valued(self) -> bool: ...
    @property
    def feasigns(self) -> NDArray[numpy.uint64]: ...
    @property
    def inverse(self) -> NDArray[numpy.uint32]: ...
    @property
    def starts(self) -> NDArray[numpy.uint32]: ...
    @property
    def order(self) -> NDArray[numpy.uint32]: ...
    def lengths(self, position: int, limit: int = 1099511627776) -> NDArray[numpy.int64]: ...

class PoolingKind(enum.Enum):
    sum = 0

    mean = 1

    first = 2

    last = 3

class SlotTarget:
    def __init__(
        self, slot: int, target: int, pooling: PoolingKind, columns: Sequence[int], length: int = 0
    ) -> None: ...

class Layout:
    def __init__(self, slots: Sequence[SlotTarget], dims: Sequence[int]) -> None: ...
    @property
    def targets(self) -> int: ...
    def lookup(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        samples: int,
    ) -> Lookup: ...

class TableStats:
    @property
    def rows(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def payload_bytes(self) -> int: ...
    @property
    def counter_bytes(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def mark_bytes(self) -> int: ...
    @property
    def steps(self) -> int: ...

class Table:
    def __init__(
        self,
        name: str,
        seed: int,
        counters: bool,
        segments: Sequence[SegmentSettings],
        admission_count: int = 1,
        admission_probability: float = 1.0,
    ) -> None: ...
    @property
    def row_stride(self) -> int: ...
    def find(self, lookup: Lookup, insert: bool) -> None: ...
    def pull(
        self, lookup: Lookup, layout: Layout, targets: Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]]
    ) -> None: ...
    def push(
        self,
        lookup: Lookup,
        layout: Layout,
        gradients: Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]],
        clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        now: int = 0,
        rate_scale: float = 1.0,
        gradient_scale: float = 1.0,
    ) -> None: ...
    def pull_rows(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> NDArray[numpy.float32]: ...
    def insert_rows(
        self,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        occurrences: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> NDArray[numpy.float32]: ...
    def push_rows(
        self,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        gradients: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        masks: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        now: int = 0,
        rate_scale: float = 1.0,
        gradient_scale: float = 1.0,
    ) -> None: ...
    def add_rows(
        self,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        deltas: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def get(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> tuple[Any, ...]: ...
    def export_rows(
        self, first_bucket: int, last_bucket: int, limit: int, cursor: int, since: tuple[int, int] | None = None
    ) -> tuple[Any, ...]: ...
    def mark(self, by_content: bool = False) -> tuple[int, int]: ...
    def knows(self, epoch: int, id: int) -> bool: ...
    def gone(self, epoch: int, id: int) -> NDArray[numpy.uint64]: ...
    def forget(self, epoch: int, id: int) -> None: ...
    def decay(self, rate: float) -> None: ...
    def evict(self, show_weight: float, click_weight: float, min_score: float, oldest: int) -> int: ...
    def erase(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> int: ...
    def stats(self) -> TableStats: ...
    def save(self, path: str, note: str) -> None: ...
    def load(self, path: str) -> None: ...
    def load_part(self, path: str, first_bucket: int, last_bucket: int) -> None: ...
    def reset(self) -> None: ...

def pool_rows(
    lookup: Lookup,
    layout: Layout,
    rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", writable=False)],
    targets: Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]],
) -> None: ...

class SummedGradients:
    @property
    def feasigns(self) -> NDArray[numpy.uint64]: ...
    @property
    def gradients(self) -> NDArray[numpy.float32]: ...
    @property
    def shows(self) -> NDArray[numpy.float32]: ...
    @property
    def clicks(self) -> NDArray[numpy.float32]: ...
    @property
    def masks(self) -> NDArray[numpy.uint64] | None: ...
    @property
    def is_finite(self) -> bool: ...

def sum_gradients(
    lookup: Lookup,
    layout: Layout,
    gradients: Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]],
    clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
    shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
) -> SummedGradients: ...

class PushKind(enum.Enum):
    gradients = 0

    deltas = 1

    nothing = 2

    empty = 3

class GroupMode(enum.Enum):
    none = 0

    all = 1

    dense = 2

class PushHead:
    def __init__(
        self,
        *,
        chunk: int,
        from_batch: int,
        to_batch: int,
        weight: int,
        now: int = 0,
        rate_scale: float = 1.0,
        kind: PushKind = PushKind.gradients,
        group: GroupMode = GroupMode.none,
        wants_dense: bool = False,
    ) -> None: ...
    @property
    def chunk(self) -> int: ...
    @chunk.setter
    def chunk(self, arg: int, /) -> None: ...
    @property
    def from_batch(self) -> int: ...
    @from_batch.setter
    def from_batch(self, arg: int, /) -> None: ...
    @property
    def to_batch(self) -> int: ...
    @to_batch.setter
    def to_batch(self, arg: int, /) -> None: ...
    @property
    def weight(self) -> int: ...
    @weight.setter
    def weight(self, arg: int, /) -> None: ...
    @property
    def now(self) -> int: ...
    @now.setter
    def now(self, arg: int, /) -> None: ...
    @property
    def rate_scale(self) -> float: ...
    @rate_scale.setter
    def rate_scale(self, arg: float, /) -> None: ...
    @property
    def kind(self) -> PushKind: ...
    @kind.setter
    def kind(self, arg: PushKind, /) -> None: ...
    @property
    def group(self) -> GroupMode: ...
    @group.setter
    def group(self, arg: GroupMode, /) -> None: ...
    @property
    def wants_dense(self) -> bool: ...
    @wants_dense.setter
    def wants_dense(self, arg: bool, /) -> None: ...

class PsMerger:
    def __init__(self, *, dims: Sequence[int], dense_floats: int, is_mean: bool) -> None: ...
    def add(
        self,
        lookups: Sequence[Lookup],
        layouts: Sequence[Layout],
        gradients: Sequence[Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]]],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        *,
        weight: int,
    ) -> bool: ...
    @property
    def batches(self) -> int: ...
    @property
    def weight(self) -> int: ...
    def clear(self) -> None: ...

class PsFetch:
    def wait(self, timeout_ms: int) -> bool: ...
    def pool(
        self, table: int, layout: Layout, targets: Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]]
    ) -> None: ...
    def rows(self, table: int) -> Annotated[NDArray[numpy.float32], dict(writable=False)]: ...
    @property
    def dense_version(self) -> int: ...
    @property
    def step(self) -> int: ...

class PsClient:
    def __init__(
        self,
        *,
        addresses: Sequence[str],
        token: str = "",
        job: int,
        trainer: int = 0,
        incarnation: int = 0,
        era: int = 0,
        attach: str,
        tables: Sequence[tuple[str, int, bool]],
        dense_floats: int,
        dense_on_first: bool = False,
        rows_as: str = "fp32",
        gradients_as: str = "fp32",
        dense_gradients_as: str = "fp32",
        timeout_ms: int = 30000,
        tls_ca: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_check_host: bool = True,
    ) -> None: ...
    @property
    def shards(self) -> int: ...
    def start_pull(self, lookups: Sequence[object], insert: bool, wants_dense: bool) -> PsFetch: ...
    def copy_dense(
        self, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")]
    ) -> int: ...
    def pull_dense(
        self, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")]
    ) -> int: ...
    def set_dense(
        self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> bool: ...
    def push(
        self,
        head: PushHead,
        lookups: Sequence[Lookup],
        layouts: Sequence[Layout],
        gradients: Sequence[Sequence[Annotated[NDArray[numpy.float32], dict(device="cpu")]]],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), device="cpu", writable=False)] | None = None,
        gradient_scale: float = 1.0,
    ) -> int: ...
    def push_rows(
        self,
        head: PushHead,
        tables: Sequence[
            tuple[
                Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
                Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
                Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
                Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
                Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)] | None,
            ]
        ],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> int: ...
    def push_merged(self, head: PushHead, merger: PsMerger) -> int: ...
    def wait_pushes(self, outstanding: int, timeout_ms: int) -> None: ...
    @property
    def outstanding(self) -> int: ...
    def cursors(self, chunks: Sequence[int]) -> list[list[int]]: ...
    def set_cursors(self, chunk: int, by_shard: Sequence[int]) -> None: ...
    def drop(self) -> None: ...
    def set_era(self, era: int) -> None: ...
    def set_address(self, shard: int, address: str, incarnation: int) -> None: ...
    def control(self, shard: int, json: str, timeout_ms: int) -> str: ...
    def stats(self) -> dict[str, Any]: ...

def bce_gradient(logits: int, labels: int, label_stride: int, weights: int, n: int, gradient: int) -> float: ...
def cpu_features() -> dict[str, bool]:
    """What this CPU can do, probed once."""

def tower_kernels() -> list[str]:
    """
    Names of the kernel sets this CPU can run, best first within a precision.
    """

def adam_step(
    weights: Sequence[int],
    gradients: Sequence[int],
    means: Sequence[int],
    squares: Sequence[int],
    steps: Sequence[int],
    sizes: Sequence[int],
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """
    One step of Adam over tensors given as addresses of float32s; advances their step counts.
    """

class TowerPass:
    """A forward pass that can be gone back through once."""

class TowerHidden:
    """
    Batch norm and dropout of one call of a tower; lists hold one address per hidden layer, or nothing. Training moves the running statistics.
    """

    def __init__(
        self,
        norm_scales: Sequence[int],
        norm_shifts: Sequence[int],
        running_means: Sequence[int],
        running_variances: Sequence[int],
        is_training: bool,
        epsilon: float,
        momentum: float,
        dropout: float,
        seed: int,
    ) -> None: ...

class Tower:
    """
    Linear layers with ReLU between them, batch norm before and dropout after it. Tensors are given as addresses of float32s.
    """

    def __init__(self, widths: Sequence[int], relu_last: bool, precision: str = "fp32", kernels: str = "") -> None: ...
    def forward(
        self,
        x: int,
        x_stride: int,
        rows: int,
        weights: Sequence[int],
        biases: Sequence[int],
        hidden: TowerHidden,
        y: int,
        y_stride: int,
        keep: bool,
    ) -> TowerPass: ...
    def backward(
        self,
        forward: TowerPass,
        dy: int,
        dy_stride: int,
        weights: Sequence[int],
        dx: int | None,
        dx_stride: int,
        weight_gradients: Sequence[int],
        bias_gradients: Sequence[int],
        scale_gradients: Sequence[int],
        shift_gradients: Sequence[int],
    ) -> None: ...
    def step(
        self,
        x: int,
        x_stride: int,
        rows: int,
        weights: Sequence[int],
        biases: Sequence[int],
        hidden: TowerHidden,
        wide_first: int,
        wide_count: int,
        wide: Sequence[int],
        labels: int,
        label_stride: int,
        sample_weights: int,
        logits: int,
        dx: int,
        weight_gradients: Sequence[int],
        bias_gradients: Sequence[int],
        scale_gradients: Sequence[int],
        shift_gradients: Sequence[int],
    ) -> float:
        """
        Gradients of the mean binary cross-entropy, which is returned. `wide`: weights, bias and their gradients of a linear layer over `wide_count` columns from `wide_first` on. dx has the stride of x.
        """

    @property
    def kernels(self) -> str: ...

class FieldAttention:
    """
    relu(softmax(scale Q Kᵀ) V + R) of a sample's fields, head by head. Tensors are given as addresses of float32s: projected [batch, fields, 4 * heads * head_dim] holds Q, K, V and R, results are [batch, fields, heads * head_dim].
    """

    def __init__(self, fields: int, heads: int, head_dim: int, scale: float) -> None: ...
    def forward(self, projected: int, batch: int, result: int) -> None: ...
    def backward(self, projected: int, result: int, gradient: int, batch: int, to_projected: int) -> None: ...

class ProductMix:
    """
    z[h, n] = Σ_ij w[h, i * right + j] a[i, n] b[j, n]. Tensors are given as addresses of float32s: a [left, columns], b [right, columns], w [out, left * right].
    """

    def __init__(self, left: int, right: int, out: int) -> None: ...
    def forward(self, a: int, b: int, w: int, columns: int, z: int) -> None: ...
    def backward(
        self, a: int, b: int, w: int, gradient: int, columns: int, to_a: int, to_b: int, to_w: int
    ) -> None: ...

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
    def auc_bound(self) -> float: ...
    def average_precision(self) -> tuple[float, float]:
        """(value, how far off it can be)"""

    def calibration_error(self, bins: int, equal_weight: bool) -> float: ...
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
    def take(self) -> bytes:
        """`state`, and begins anew"""

    def restore(self, state: bytes) -> None: ...
    def merge_state(self, state: bytes) -> None:
        """adds a saved state"""

    @staticmethod
    def check_state(state: bytes) -> None:
        """raises what `restore` would"""

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

    def rank(self, k: int) -> tuple[float, float, int, int]:
        """(ndcg, recall, groups counted, groups without a positive)"""

    def rows(self, min_samples: int) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.float64]]:
        """
        groups, and for each: samples, weight, positive weight, auc, its standard deviation
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

class SegmentMetrics:
    def __init__(self, max_values: int) -> None: ...
    def update(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None: ...
    def merge(self, other: SegmentMetrics) -> None: ...
    def rows(self) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.float64]]:
        """
        values, and for each: samples, then sums of weight (w), w y, w p, w loss, w^2, w^2 loss, w^2 loss^2
        """

    @property
    def level(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def invalid(self) -> int: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

class Bootstrap:
    def __init__(self, is_paired: bool = False) -> None: ...
    def update(
        self,
        logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        labels: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        others: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None: ...
    def merge(self, other: Bootstrap) -> None: ...
    def estimate(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]:
        """auc, logloss, and the second model's"""

    def draw(
        self, replicates: int, seed: int
    ) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]:
        """for each replicate: auc, logloss, and the second model's"""

    @property
    def is_paired(self) -> bool: ...
    @property
    def samples(self) -> int: ...
    @property
    def invalid(self) -> int: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

def encode_rows(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    encoding: str,
) -> NDArray[numpy.uint8]: ...
def decode_rows(
    rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    encoding: str,
    dim: int,
) -> NDArray[numpy.float32]: ...

class CubeInfo:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def encoding(self) -> str: ...
    @property
    def sharding(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def shard(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def parent(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def tombstones(self) -> int: ...
    @property
    def homes(self) -> int: ...
    @property
    def buckets(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...

class CubeIndex:
    @staticmethod
    def open(path: str, residence: str = "mapped", check_all: bool = False) -> CubeIndex: ...
    @property
    def info(self) -> CubeInfo: ...
    @property
    def resident_bytes(self) -> int: ...
    def scan(self, bucket: int, buckets: int) -> tuple[Any, ...]: ...
    def lookup(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> tuple[NDArray[numpy.uint8], NDArray[numpy.bool_]]: ...

def compact_cube_files(paths: Sequence[str], version: int, out: str) -> CubeInfo: ...

class CubeBuilder:
    def __init__(
        self,
        name: str,
        kind: str,
        encoding: str,
        dim: int,
        row_bytes: int,
        sharding: str,
        shards: int,
        version: int,
        parent: int,
        run_directory: str,
        memory_bytes: int,
        expected_rows: int = 0,
        threads: int = 1,
        is_chain: bool = False,
    ) -> None: ...
    def add(
        self,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def add_gone(
        self, feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def finish(self, paths: Sequence[str]) -> tuple[Any, ...]: ...
    @property
    def progress(self) -> int: ...

class CubeStore:
    @staticmethod
    def make(residence: str, check_all: bool) -> CubeStore: ...
    def load(
        self, model: str, version: int, parent: int, files: Sequence[tuple[str, str]], shard: int = 0, shards: int = 0
    ) -> None: ...
    def activate(self, model: str, version: int) -> None: ...
    def retire(self, model: str, version: int) -> None: ...
    @property
    def generation(self) -> int: ...
    @property
    def resident_bytes(self) -> int: ...
    def models(self) -> list[tuple[str, int, int, list[tuple[int, int, int, dict[str, CubeInfo]]]]]: ...
    def lookup(
        self,
        table: str,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        version: int = 0,
    ) -> tuple[Any, ...]: ...

def lookup_cube_shards(
    stores: Sequence[CubeStore],
    table: str,
    feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    version: int,
) -> tuple[Any, ...]: ...

class CubeClient:
    def __init__(
        self,
        *,
        shards: Sequence[Sequence[str]],
        sharding: str = "auto",
        token: str = "",
        timeout_ms: int = 200,
        connect_ms: int = 100,
        retries: int = 3,
        backup_ms: int = 50,
        load_balancer: str = "round_robin",
        eject_after: int = 3,
        eject_ms: int = 1000,
        eject_max_ms: int = 30000,
        idle_connections: int = 64,
        cache_bytes: int = 0,
        refresh_ms: int = 1000,
        tls_ca: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_check_host: bool = True,
    ) -> None: ...
    def get(
        self,
        tables: Sequence[str],
        feasigns: Sequence[
            Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        ],
        version: int = 0,
        timeout_ms: int = 0,
        degrade: bool = False,
    ) -> tuple[Any, ...]: ...
    def connect(self, timeout_ms: int) -> None: ...
    def tables(self) -> list[str]: ...
    def identities(self, model: str, version: int) -> list[str]: ...
    def close_idle(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...

class CubeLoad:
    def __init__(
        self,
        client: CubeClient,
        table: str,
        feasigns: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        *,
        batch: int = 100,
        threads: int = 1,
        seconds: float = 5.0,
        rate: float = 0.0,
        version: int = 0,
        timeout_ms: int = 0,
        degrade: bool = False,
    ) -> None: ...
    @property
    def calls(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    def stop(self) -> None: ...
    def finish(self) -> dict[str, Any]: ...

class CubeServer:
    def __init__(
        self,
        data: str,
        host: str,
        ports: Sequence[int],
        unix_path: str,
        in_memory: bool,
        check_all: bool,
        threads: int,
        token: str,
        read_token: str,
        shard: int,
        shards: int,
        activate_newest: bool,
        max_connections: int,
        max_connections_per_address: int,
        max_buffered_bytes: int,
        request_timeout_s: int,
        busy_poll_us: int,
        tls_cert: str = "",
        tls_key: str = "",
        tls_client_ca: str = "",
    ) -> None: ...
    def set_tls(self, cert: str, key: str, client_ca: str) -> None: ...
    def start(self) -> None: ...
    def wait_started(self, timeout_s: float) -> bool: ...
    def stop(self, drain_s: float) -> None: ...
    @property
    def ports(self) -> list[int]: ...
    @property
    def is_ready(self) -> bool: ...
    def status(self) -> str:
        """What GET /v1/status answers."""

class TableSettings:
    """What a table of a pserver is made with."""

    def __init__(
        self,
        name: str,
        seed: int,
        counters: bool,
        segments: Sequence[SegmentSettings],
        admission_count: int = 1,
        admission_probability: float = 1.0,
    ) -> None: ...

class DenseOptimizerKind(enum.Enum):
    sgd = 0

    adam = 1

    adamw = 2

    adagrad = 3

class DenseOptimizerSettings:
    def __init__(
        self,
        kind: DenseOptimizerKind,
        learning_rate: float,
        weight_decay: float = 0.0,
        clip_norm: float = 0.0,
        beta1: float = 0.8999999761581421,
        beta2: float = 0.9990000128746033,
        epsilon: float = 9.99999993922529e-09,
    ) -> None: ...

class PServer:
    """
    A parameter server in this process: tables and a part of the dense vector.
    """

    def __init__(
        self,
        shard: int,
        shards: int,
        tables: Sequence[TableSettings],
        dense_floats: int,
        dense_on_first: bool,
        dense_optimizer: DenseOptimizerSettings,
        host: str,
        port: int,
        unix_path: str,
        token: str,
        job: int,
        identity: str,
        digest: str,
        build: str,
        strategy: str,
        is_standby: bool,
        threads: int,
        group_timeout_ms: int,
        max_buffered_bytes: int,
        request_timeout_s: int,
        scratch: str = "",
        standby_timeout_ms: int = 5000,
        standby_max_bytes: int = 536870912,
        confirms_drops: bool = True,
        tls_cert: str = "",
        tls_key: str = "",
        tls_client_ca: str = "",
        tls_ca: str = "",
        tls_check_host: bool = True,
        files: str = "",
    ) -> None: ...
    def set_tls(self, cert: str, key: str, client_ca: str) -> None: ...
    def start(self) -> None: ...
    def stop(self, drain_s: float) -> None: ...
    def load(self, directory: str, era: int = 0) -> None:
        """
        Replaces everything by a checkpoint's part, or, given an empty text, by nothing; then it is ready.
        """

    def set_ready(self) -> None: ...
    @property
    def port(self) -> int: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def is_primary(self) -> bool: ...
    @property
    def is_stop_asked(self) -> bool: ...
    @property
    def is_dropping(self) -> bool:
        """The standby is given up; pushes are held until confirm_drop."""

    def confirm_drop(self) -> None: ...
    def stats(self) -> str:
        """JSON."""

class ServeSlot:
    def __init__(
        self,
        *,
        table: int | None = None,
        pooling: str = "sum",
        pieces: Sequence[tuple[int, int, int]] = [],
        row: int = 0,
        dim: int = 0,
        max_values: int = 0,
        input: str = "",
        lengths: str = "",
        is_typed: bool = False,
        oov: int | None = None,
    ) -> None: ...

class ServePlan:
    def __init__(
        self,
        *,
        spec: ParserSpec,
        sparse: Sequence[ServeSlot],
        dense_columns: Sequence[int],
        tables: Sequence[tuple[str, int]],
        labels: Sequence[str],
        pooled_width: int,
        dense_width: int,
        paddle_feeds: Sequence[tuple[str, str]] = [],
        derived: Deriver = ...,
    ) -> None: ...

class ServePolicy:
    def __init__(
        self,
        *,
        fails_on_missing: bool = False,
        min_coverage: float = 0.0,
        fails_on_dead_shard: bool = True,
        fails_on_late_cube: bool = True,
        cube_timeout_ms: int = 200,
    ) -> None: ...

class ServedVersion:
    def __init__(
        self,
        *,
        model: str,
        version: int,
        plan: ServePlan,
        rows_model: str,
        stores: Sequence[CubeStore] = [],
        clients: Sequence[CubeClient] = [],
        onnx: bytes,
        library: str,
        policy: ServePolicy,
        where: str,
        whole_because: str = "",
    ) -> None:
        """
        Rows from the stores of all shards, or from the client of each table. `whole_because`: why the graph is not to be cut behind its first layer.
        """

    @property
    def model(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def why_whole(self) -> str:
        """
        Why what candidates share goes through the first layer once for each; empty: once per request.
        """

    @property
    def labels(self) -> list[str]: ...
    def score_batch(
        self,
        values: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        dense: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        timeout_ms: int = 0,
        shared: tuple[
            Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
            Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
            Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        ]
        | None = None,
    ) -> tuple[Any, ...]:
        """
        Scores [n, labels], rows asked for, rows found, what was degraded, and whether what samples share went through the first layer once.
        """

    def score_requests(
        self,
        requests: Sequence[
            tuple[
                tuple[
                    Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
                    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
                    Annotated[
                        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
                    ],
                ],
                tuple[
                    Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
                    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
                    Annotated[
                        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
                    ],
                ]
                | None,
            ]
        ],
        timeout_ms: int = 0,
    ) -> list[tuple[Any, ...]]:
        """
        As score_batch, of several requests in one batch: (values, offsets, dense) and what is shared.
        """

    def score_lines(self, text: bytes, format: TextFormat | None = None, timeout_ms: int = 0) -> tuple[Any, ...]: ...

class RequestLog:
    def __init__(
        self,
        directory: str,
        sample: float = 1.0,
        max_bytes: int = 10737418240,
        file_bytes: int = 67108864,
        file_s: int = 60,
        queue_bytes: int = 67108864,
        body_bytes: int = 262144,
    ) -> None: ...
    def takes(self, id: str) -> bool: ...
    def add(
        self,
        time: float,
        id: str,
        model: str,
        version: int,
        variant: str,
        protocol: str,
        body: bytes,
        slots: Sequence[str],
        dense_slots: Sequence[tuple[str, int]],
        rows: Sequence[Sequence[tuple[int, Sequence[int]]]],
        dense: Sequence[Sequence[float]],
        scores: Sequence[Sequence[float]],
    ) -> bool: ...
    def stop(self) -> None: ...
    def metrics(self) -> str: ...
    @property
    def written(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def removed(self) -> int: ...

def grpc_status(code: int) -> int:
    """The number gRPC has for an error."""

def http_status(code: int) -> int:
    """The HTTP status of an error code (ElasticCTRError.exit_status)."""

def check_site(*, method: str, host: str, origin: str, content_type: str, own_host: str) -> tuple[int, str] | None:
    """
    Why a server without a token must not answer this: HTTP status and sentence. None: it may.
    """

class PredictServer:
    def __init__(
        self,
        *,
        host: str,
        ports: Sequence[int],
        unix_path: str,
        loops: int,
        workers: int,
        token: str,
        read_token: str,
        batch_samples: int,
        batch_wait_us: int,
        queue_requests: int,
        queue_ms: int,
        timeout_ms: int,
        body_bytes: int,
        samples: int,
        values: int,
        json_depth: int,
        max_connections: int,
        max_connections_per_address: int,
        max_buffered_bytes: int,
        request_timeout_s: int,
        busy_poll_us: int,
        control_requests: int,
        control_timeout_s: float,
        access_log: str,
        access_log_max_bytes: int,
        access_log_keep: int,
        tls_cert: str,
        tls_key: str,
        tls_client_ca: str,
        request_log: dict[str, Any] | None,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self, drain_s: float) -> None: ...
    def set_models(
        self, models: Sequence[tuple[str, str, int, bool, Sequence[tuple[str, float, bool, ServedVersion]]]]
    ) -> None: ...
    def set_tls(self, cert: str, key: str, client_ca: str) -> None: ...
    def set_ready(self, is_ready: bool, why: str) -> None: ...
    def next_control(self, timeout_s: float) -> tuple[int, bytes, bytes, bytes, bytes, bytes] | None:
        """id, method, path, query, authorization, body"""

    def answer_control(self, id: int, status: int, content_type: str, body: bytes, headers: str = "") -> None: ...
    def call(
        self,
        codec: str,
        body: bytes,
        model: str = "",
        version: str = "",
        timeout_ms: int = 0,
        id: str = "",
        peer: str = "",
    ) -> bytes: ...
    def matches(self, token: str) -> bool:
        """Whether this is the server's token; true if it has none."""

    def metrics(self) -> str: ...
    def set_extra_metrics(self, text: str) -> None: ...
    @property
    def ports(self) -> list[int]: ...
    @property
    def queued(self) -> int: ...
    @property
    def connections(self) -> int: ...
