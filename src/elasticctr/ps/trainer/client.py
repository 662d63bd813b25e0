"""A trainer's side of all pservers of a job, thin over the native one.

    client = PsClient(addresses, identity=..., tables=..., dense_floats=..., trainer=...)
    fetch = client.start_pull(lookups, insert=True, wants_dense=True)   # returns at once
    fetch.pool(0, layout, [flat])                                       # waits, writes what Table.pull would
    client.push(head, lookups, layouts, [[flat.grad]], dense_gradient, clicks, shows)
    client.wait_pushes(2)

Pushes are acknowledged later and sent again over a new connection until they are. Knows arrays, not torch; which
batches to push is a strategy's business, what to do about a CursorError or an EraError the trainer role's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr._native import GroupMode, Layout, Lookup, PushHead, PushKind
from elasticctr._native import PsFetch as Fetch
from elasticctr._native import PsMerger as Merger
from elasticctr.config.tls import TlsSettings
from elasticctr.errors import Corruption
from elasticctr.ps.errors import CursorError, EraError
from elasticctr.table import TableSettings

__all__ = [
    "CursorError",
    "EraError",
    "Fetch",
    "GroupMode",
    "Merger",
    "PsClient",
    "PushHead",
    "PushKind",
    "RowGradients",
]

Array = Any  # float32 on the CPU that speaks DLPack


@dataclass(frozen=True, slots=True)
class RowGradients:
    """Gradients, or deltas, of distinct feasigns of one table."""

    feasigns: NDArray[np.uint64]  # [n]
    shows: NDArray[np.float32]  # [n]
    clicks: NDArray[np.float32]  # [n]
    gradients: NDArray[np.float32]  # [n, all segments' weights side by side]
    masks: NDArray[np.uint64] | None = None  # [n]; bit i: segment i has a gradient. None: every segment


class PsClient:
    """Every function may be called from any thread. Raises Unavailable, DeadlineExceeded, Unauthorized, Corruption,
    FailedPrecondition; messages name the pserver and its address."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        job: int,
        attach: Mapping[str, object],
        tables: Sequence[TableSettings],
        dense_floats: int,
        dense_on_first: bool = False,
        trainer: int = 0,
        incarnation: int = 0,
        era: int = 0,
        token: str = "",
        rows_as: str = "fp32",
        gradients_as: str = "fp32",
        dense_gradients_as: str = "fp32",
        timeout_s: float = 30.0,
        tls: TlsSettings | None = None,
    ) -> None:
        """Connects to every pserver and attaches. `job` is Identity.number; `attach` says role, id, build, identity and
        strategy (docs/formats/ps-wire.md); tables are all of the job's, in order."""
        self._timeout_ms = max(1, round(timeout_s * 1000))
        self._dims = [sum(segment.dim for segment in table.segments) for table in tables]
        self._dense_floats = dense_floats
        self._native = _native.PsClient(
            addresses=list(addresses),
            token=token,
            job=job,
            trainer=trainer,
            incarnation=incarnation,
            era=era,
            attach=json.dumps(dict(attach)),
            tables=[
                (table.name, dim, table.admission.count > 1 or table.admission.probability < 1.0)
                for table, dim in zip(tables, self._dims, strict=True)
            ],
            dense_floats=dense_floats,
            dense_on_first=dense_on_first,
            rows_as=rows_as,
            gradients_as=gradients_as,
            dense_gradients_as=dense_gradients_as,
            timeout_ms=self._timeout_ms,
            **({} if tls is None else tls.client_files()),
        )

    @property
    def shards(self) -> int:
        return self._native.shards

    @property
    def outstanding(self) -> int:
        """Pushes that are not acknowledged."""
        return self._native.outstanding

    def start_pull(self, lookups: Sequence[Lookup], insert: bool, wants_dense: bool = False) -> Fetch:
        """Asks for the rows of a batch, one lookup per table. With `insert`, once per training batch, new feasigns get
        rows. `fetch.pool(table, layout, targets)` and `fetch.rows(table)` wait for them."""
        return self._native.start_pull(lookups, insert, wants_dense)

    def copy_dense(self, out: Array) -> int:
        """Writes the dense vector as last received; its version."""
        return self._native.copy_dense(out)

    def pull_dense(self, out: Array) -> int:
        """As copy_dense, after asking for what is newer."""
        return self._native.pull_dense(out)

    def set_dense(self, values: Array) -> bool:
        """Gives the pservers their first dense values. False: they had some, which stay."""
        return self._native.set_dense(values)

    def push(
        self,
        head: PushHead,
        lookups: Sequence[Lookup],
        layouts: Sequence[Layout],
        gradients: Sequence[Sequence[Array]],
        dense: Array | None = None,
        clicks: Array | None = None,
        shows: Array | None = None,
        gradient_scale: float = 1.0,
    ) -> int:
        """Sums a batch's gradients per feasign and hands them over; per table a lookup, a layout and the gradients of
        its arrays. Returns the number of the push."""
        return self._native.push(head, lookups, layouts, gradients, dense, clicks, shows, gradient_scale)

    def push_rows(self, head: PushHead, tables: Sequence[RowGradients], dense: Array | None = None) -> int:
        """Hands over gradients or deltas of given feasigns, of every table or of none."""
        given = [(t.feasigns, t.shows, t.clicks, t.gradients, t.masks) for t in tables]
        return self._native.push_rows(head, given, dense)

    def push_merged(self, head: PushHead, merger: Merger) -> int:
        """Hands over what a merger holds. It can be cleared at once."""
        return self._native.push_merged(head, merger)

    def wait_pushes(self, outstanding: int = 0, timeout_s: float | None = None) -> None:
        """Waits until at most so many pushes are not acknowledged. Raises the first refusal, CursorError or
        EraError above all, until `drop`; DeadlineExceeded leaves all queued."""
        timeout_ms = self._timeout_ms if timeout_s is None else max(0, round(timeout_s * 1000))
        self._native.wait_pushes(outstanding, timeout_ms)

    def cursors(self, chunks: Sequence[int]) -> list[list[int]]:
        """How many batches of each chunk each pserver has applied: [shard][chunk]."""
        return self._native.cursors(chunks)

    def set_cursors(self, chunk: int, by_shard: Sequence[int]) -> None:
        """Says what was learned that way: pservers get no batch of the chunk that they have."""
        self._native.set_cursors(chunk, by_shard)

    def drop(self) -> None:
        """Forgets pushes that are not acknowledged, refusals and cursors: after a rollback."""
        self._native.drop()

    def set_era(self, era: int) -> None:
        """Requests and pushes from now on are of this era, the coordinator's count of rollbacks. Call after `drop`."""
        self._native.set_era(era)

    def set_address(self, shard: int, address: str, incarnation: int) -> None:
        """Continues with a pserver that replaced another; sends again what is not acknowledged."""
        self._native.set_address(shard, address, incarnation)

    def control(self, shard: int, op: str, timeout_s: float | None = None, **arguments: object) -> dict[str, Any]:
        """A control operation of one pserver (docs/formats/ps-wire.md)."""
        timeout_ms = self._timeout_ms if timeout_s is None else max(1, round(timeout_s * 1000))
        text = self._native.control(shard, json.dumps({"op": op, **arguments}), timeout_ms)
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            raise Corruption(f"pserver {shard} answered {op!r} with something that is no JSON") from None
        if not isinstance(answer, dict):
            raise Corruption(f"pserver {shard} answered {op!r} with something that is no JSON object")
        return answer

    def merger(self, *, is_mean: bool = True) -> Merger:
        """A merger for this job's tables and dense vector: gradients of batches averaged by weight, or added."""
        return Merger(dims=self._dims, dense_floats=self._dense_floats, is_mean=is_mean)

    def stats(self) -> dict[str, Any]:
        """Counters, and per pserver address, is_ready and trouble."""
        return self._native.stats()
