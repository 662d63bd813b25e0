"""Tables spread over the ranks: each owns a contiguous range of the buckets of every table.

A step exchanges three things, all tables in one message per pair of ranks: feasigns to their owners, rows back, and
summed gradients to the owners, who add them up over ranks and step each row once. A feasign is sent once per batch,
however often it occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.collective.group import Group
from elasticctr.table import Lookup, Table

_COUNTERS = 2  # floats beside the gradients of a feasign: show and click
_MASK = 2  # and those whose bits are its mask of segments


@dataclass(frozen=True, slots=True)
class Summed:
    """Gradients of the distinct feasigns of a lookup, in its order."""

    gradients: NDArray[np.float32]  # [distinct, width]
    shows: NDArray[np.float32]
    clicks: NDArray[np.float32]
    masks: NDArray[np.uint64] | None  # None: every segment has a gradient


@dataclass(frozen=True, slots=True)
class _TableRequest:
    """The requests to one table in a step."""

    order: NDArray[np.intp]  # distinct feasigns of our batch by owner
    sent: NDArray[np.int64]  # [ranks] how many of them each rank owns
    received: NDArray[np.int64]  # [ranks] how many each rank asked us for
    merged: Lookup  # those: the distinct ones, and which came from where


class ShardedTables:
    """One step after another: `pull`, then `push` unless it was for evaluation."""

    def __init__(self, group: Group, tables: Sequence[Table], have_masks: Sequence[bool]) -> None:
        """`have_masks`: of each table, whether some feasign of a batch may lack a gradient for some segment."""
        self._group = group
        self._tables = list(tables)
        self._widths = [sum(segment.dim for segment in table.settings.segments) for table in tables]
        self._have_masks = list(have_masks)
        self._counted = [
            table.settings.admission.count > 1 or table.settings.admission.probability < 1 for table in tables
        ]
        self._asked: list[_TableRequest] = []

    def pull(
        self, lookups: Sequence[Lookup] | None, note: Sequence[int], *, insert: bool
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
        """Rows [distinct, width] of each table, and everyone's `note`, a few numbers, by rank.

        A rank without a batch passes None, and takes part too.
        """
        size = self._group.size
        none = [_no_feasigns() for _ in self._tables]
        feasigns = none if lookups is None else [lookup.feasigns for lookup in lookups]
        orders, counts = [], np.zeros((size, len(self._tables)), np.int64)
        for t, values in enumerate(feasigns):
            owners = _native.shards_of(values, size)
            orders.append(np.argsort(owners, kind="stable"))
            counts[:, t] = np.bincount(owners, minlength=size)
        heads = self._group.exchange(np.hstack([counts, np.tile(np.asarray(note, np.int64), (size, 1))]))
        received, notes = heads[:, : len(self._tables)], heads[:, len(self._tables) :]
        sorted_feasigns = [values[order] for values, order in zip(feasigns, orders, strict=True)]
        asked = self._exchange(sorted_feasigns, [1] * len(self._tables), counts, received)
        occurrences = self._exchange_occurrences(lookups, orders, counts, received) if insert else {}
        self._asked = []
        answers = []
        for t, table in enumerate(self._tables):
            merged = _merge(asked[t])
            self._asked.append(_TableRequest(orders[t], counts[:, t], received[:, t], merged))
            seen = _sum_by(merged, occurrences[t]).astype(np.uint32) if t in occurrences else None
            rows = table.insert_rows(merged.feasigns, seen) if insert else table.pull_rows(merged.feasigns)
            answers.append(rows[merged.inverse])
        arrived = self._exchange(answers, self._widths, received, counts)
        return [_scatter(values, order) for values, order in zip(arrived, orders, strict=True)], notes

    def push(
        self, summed: Sequence[Summed] | None, left_out: Sequence[bool], *, scale: float, now: int, rate_scale: float
    ) -> None:
        """Steps the rows of the last pull once, by everyone's gradients times `scale`.

        `left_out`: by rank, whether its gradients are left out; the same on every rank.
        """
        packed = [
            np.empty((0, self._lanes(t)), np.float32) if summed is None else self._pack(t, summed[t])
            for t in range(len(self._tables))
        ]
        sent = np.stack([asked.sent for asked in self._asked], axis=1)
        received = np.stack([asked.received for asked in self._asked], axis=1)
        arrived = self._exchange(packed, [self._lanes(t) for t in range(len(self._tables))], sent, received)
        for t, table in enumerate(self._tables):
            merged, values = self._asked[t].merged, arrived[t]
            if any(left_out):
                kept = np.repeat(~np.asarray(left_out, np.bool_), received[:, t])
                asked = merged.feasigns[merged.inverse][kept]
                merged, values = _merge(asked), values[kept]
            width = self._widths[t]
            masks = None
            if self._have_masks[t]:
                bits = np.ascontiguousarray(values[:, width + _COUNTERS :]).view(np.uint64)[:, 0]
                masks = np.bitwise_or.reduceat(bits[merged.order], merged.starts[:-1]) if len(bits) else bits
            sums = _sum_by(merged, values[:, : width + _COUNTERS])
            table.push_rows(
                merged.feasigns,
                shows=np.ascontiguousarray(sums[:, width]),
                clicks=np.ascontiguousarray(sums[:, width + 1]),
                masks=masks,
                gradients=np.ascontiguousarray(sums[:, :width]),
                now=now,
                rate_scale=rate_scale,
                gradient_scale=scale,
            )
        self._asked = []

    def _lanes(self, t: int) -> int:
        return self._widths[t] + _COUNTERS + (_MASK if self._have_masks[t] else 0)

    def _pack(self, t: int, summed: Summed) -> NDArray[np.float32]:
        """[distinct, lanes] by owner: gradients, show, click and, where there are masks, their bits."""
        order, width = self._asked[t].order, self._widths[t]
        packed = np.empty((len(order), self._lanes(t)), np.float32)
        packed[:, :width] = summed.gradients[order]
        packed[:, width] = summed.shows[order]
        packed[:, width + 1] = summed.clicks[order]
        if self._have_masks[t]:
            everything = np.full(len(order), (1 << 64) - 1, np.uint64)
            masks = everything if summed.masks is None else summed.masks[order]
            packed[:, width + _COUNTERS :] = masks.view(np.float32).reshape(-1, _MASK)
        return packed

    def _exchange_occurrences(
        self,
        lookups: Sequence[Lookup] | None,
        orders: Sequence[NDArray[np.intp]],
        sent: NDArray[np.int64],
        received: NDArray[np.int64],
    ) -> dict[int, NDArray[np.uint64]]:
        """How often each feasign asked for occurs, for the tables whose admission counts that."""
        chosen = [t for t, is_counted in enumerate(self._counted) if is_counted]
        if not chosen:
            return {}
        values = [
            _no_feasigns() if lookups is None else np.diff(lookups[t].starts).astype(np.uint64)[orders[t]]
            for t in chosen
        ]
        arrived = self._exchange(values, [1] * len(chosen), sent[:, chosen], received[:, chosen])
        return dict(zip(chosen, arrived, strict=True))

    def _exchange(
        self,
        values: Sequence[NDArray[Any]],
        widths: Sequence[int],
        sent: NDArray[np.int64],
        received: NDArray[np.int64],
    ) -> list[NDArray[Any]]:
        """Arrays of each table, in order of the ranks they go to, in one message per pair of ranks."""
        if self._group.size == 1:
            return list(values)
        pieces = [np.split(array, np.cumsum(sent[:-1, t])) for t, array in enumerate(values)]
        flat = [pieces[t][rank].reshape(-1) for rank in range(self._group.size) for t in range(len(values))]
        arrived = self._group.exchange_pieces(
            np.concatenate(flat), (sent @ np.asarray(widths)).tolist(), (received @ np.asarray(widths)).tolist()
        )
        sizes = (received * np.asarray(widths)).reshape(-1).tolist()
        parts = [arrived[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]
        joined = [np.concatenate(parts[t :: len(values)]) for t in range(len(values))]
        return [
            array.reshape(-1, width) if like.ndim == 2 else array
            for array, width, like in zip(joined, widths, values, strict=True)
        ]


def _no_feasigns() -> NDArray[np.uint64]:
    return np.empty(0, np.uint64)


def _merge(feasigns: NDArray[np.uint64]) -> Lookup:
    return Lookup(feasigns, np.arange(len(feasigns) + 1, dtype=np.int32), len(feasigns), [0])


def _sum_by(merged: Lookup, values: NDArray[Any]) -> NDArray[Any]:
    """The sum for each distinct feasign, added in the order of the ranks."""
    return np.add.reduceat(values[merged.order], merged.starts[:-1]) if len(values) else values


def _scatter(values: NDArray[np.float32], order: NDArray[np.intp]) -> NDArray[np.float32]:
    """Undoes the sorting by owner."""
    out = np.empty_like(values)
    out[order] = values
    return out
