"""The ranks of a collective run: who they are, and what they send each other.

Whoever starts the ranks (torchrun, a shell) sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Everything here is a
collective call: each rank makes the same calls in the same order. A rank that is gone ends the call on the others with
Unavailable, never with a wait without end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from elasticctr.errors import ConfigError, ElasticCTRError, Unavailable

T = TypeVar("T")

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Group:
    """All ranks. Use it as a context: leaving it leaves the group."""

    def __init__(self, timeout_s: float = 600.0, environ: Mapping[str, str] = os.environ) -> None:
        missing = [name for name in _VARIABLES if not environ.get(name)]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)}: not set, so this process is no rank of a group; start collective training with "
                "elasticctr train JOB --on torchrun, or with torchrun"
            )
        self._restarts = int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        timeout = timedelta(seconds=timeout_s)
        try:
            store, rank, size = next(rendezvous("env://", timeout=timeout))
            # torchrun on one machine keeps its store over restarts, and with it the addresses of ranks that are dead.
            if environ.get("GROUP_WORLD_SIZE") == "1":
                store = dist.PrefixStore(f"restart-{self._restarts}", store)  # type: ignore[attr-defined]
            dist.init_process_group(_backend(), store=store, rank=rank, world_size=size, timeout=timeout)
        except (RuntimeError, ValueError) as e:
            raise Unavailable(f"the ranks did not come together within {timeout_s:g} s: {_short(e)}") from e
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    @property
    def is_first(self) -> bool:
        """Rank 0 writes what a run has one of: events, manifests, reports."""
        return self.rank == 0

    @property
    def is_restarted(self) -> bool:
        """Whether torchrun had to start the group again."""
        return self._restarts > 0

    def sum(self, values: Tensor) -> Tensor:
        """Adds up a vector over all ranks, in place."""
        if self.size > 1:
            self._do(lambda: dist.all_reduce(values))
        return values

    def exchange(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row p of [size, k] goes to rank p; row p of the answer came from rank p."""
        if self.size == 1:
            return values
        received = torch.empty(values.shape, dtype=torch.int64)
        sent = torch.from_numpy(np.ascontiguousarray(values))
        self._do(lambda: dist.all_to_all_single(received, sent))
        answer: NDArray[np.int64] = received.numpy()
        return answer

    def exchange_pieces(self, values: NDArray[Any], send: Sequence[int], receive: Sequence[int]) -> NDArray[Any]:
        """The first send[0] values go to rank 0, the next send[1] to rank 1, ...; receive[p] come from rank p."""
        if self.size == 1:
            return values
        # Backends know no unsigned 64-bit integers; the bytes are the same.
        kind = torch.int64 if values.dtype == np.uint64 else torch.float32
        received = torch.empty(sum(receive), dtype=kind)
        sent = torch.from_numpy(values.view(np.int64) if kind == torch.int64 else values)
        self._do(lambda: dist.all_to_all_single(received, sent, list(receive), list(send)))
        answer: NDArray[Any] = received.numpy()
        return answer.view(values.dtype)

    def gather(self, value: T) -> list[T]:
        """Everyone's value, by rank, on every rank. For small things."""
        values: list[Any] = [None] * self.size
        self._do(lambda: dist.all_gather_object(values, value))
        return values

    def tell(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        holder = [value]
        self._do(lambda: dist.broadcast_object_list(holder, src=0))
        return holder[0]

    def first(self, call: Callable[[], T]) -> T:
        """What rank 0 gets from `call`, on every rank; an error of the tree too."""
        answer: tuple[T | None, tuple[type[ElasticCTRError], str] | None] = (None, None)
        if self.is_first:
            try:
                answer = (call(), None)
            except ElasticCTRError as e:
                answer = (None, (type(e), str(e)))
        value, error = self.tell(answer)
        if error is not None:
            raise error[0](error[1])
        return value  # type: ignore[return-value]

    def tell_floats(self, values: Tensor) -> Tensor:
        """Rank 0's floats, in place."""
        if self.size > 1:
            self._do(lambda: dist.broadcast(values, src=0))
        return values

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        dist.destroy_process_group()

    def _do(self, call: Callable[[], object]) -> None:
        try:
            call()
        except RuntimeError as e:
            raise Unavailable(
                f"rank {self.rank} of {self.size}: another rank is gone or does not answer ({_short(e)}); the group "
                "starts again from the newest checkpoint where something restarts it, as torchrun does"
            ) from e


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
