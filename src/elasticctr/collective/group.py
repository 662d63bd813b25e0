"""The ranks of a collective run: who they are, and what they send each other.

What starts the ranks (torchrun, a shell) sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Everything here is a
collective call: each rank makes the same calls in the same order. A rank that is gone ends the call on the others with
Unavailable, and never waits forever. All but arrays travels as JSON: nothing a peer sends is ever unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from elasticctr.collective.meeting import Meeting, find_meeting, open_store
from elasticctr.errors import DataError, ElasticCTRError, Unavailable, class_of_exit


class Group:
    """All ranks. Use it as a context: leaving it leaves the group."""

    def __init__(
        self,
        timeout_s: float = 600.0,
        environ: Mapping[str, str] = os.environ,
        *,
        token: str = "",
        insecure: bool = False,
    ) -> None:
        """`token`: only ranks with the same token meet. `insecure`: the ranks may be on several machines."""
        self._restarts = int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        meeting = find_meeting(environ, insecure=insecure)
        meeting.stay_local()
        timeout = timedelta(seconds=timeout_s)
        try:
            store = self._prefix(open_store(meeting, timeout), meeting, token)
            dist.init_process_group(
                _backend(), store=store, rank=meeting.rank, world_size=meeting.size, timeout=timeout
            )
        except (RuntimeError, ValueError) as e:
            raise Unavailable(f"the ranks did not come together within {timeout_s:g} s: {_short(e)}") from e
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def _prefix(self, store: Any, meeting: Meeting, token: str) -> Any:
        prefixes = [meeting.secret_prefix(token)] if token else []
        # torchrun on one machine keeps its store over restarts, and with it the addresses of ranks that are dead.
        if meeting.is_store_kept:
            prefixes.append(f"restart-{self._restarts}")
        for prefix in prefixes:
            store = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        return store

    @property
    def is_first(self) -> bool:
        """Rank 0 writes what exists once per run: events, manifests, reports."""
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

    def gather_bytes(self, value: bytes) -> list[bytes]:
        """The bytes of all ranks, by rank, on every rank. For small values."""
        if self.size == 1:
            return [value]
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.size)]
        self._do(lambda: dist.all_gather(sizes, torch.tensor([len(value)], dtype=torch.int64)))
        counts = [int(size) for size in sizes]
        padded = torch.zeros(max(1, *counts), dtype=torch.uint8)
        padded[: len(value)] = torch.from_numpy(np.frombuffer(value, np.uint8).copy())
        pieces = [torch.empty_like(padded) for _ in range(self.size)]
        self._do(lambda: dist.all_gather(pieces, padded))
        return [piece[:count].numpy().tobytes() for piece, count in zip(pieces, counts, strict=True)]

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank, on every rank: small ones that JSON can hold."""
        return [_parse(text) for text in self.gather_bytes(json.dumps(value).encode())]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank: one that JSON can hold."""
        text = json.dumps(value).encode()
        if self.size == 1:
            return _parse(text)
        size = torch.tensor([len(text)], dtype=torch.int64)
        self._do(lambda: dist.broadcast(size, src=0))
        data = torch.zeros(int(size), dtype=torch.uint8)
        if self.is_first:
            data = torch.from_numpy(np.frombuffer(text, np.uint8).copy())
        self._do(lambda: dist.broadcast(data, src=0))
        return _parse(data.numpy().tobytes())

    def first(self, call: Callable[[], Any]) -> Any:
        """The result of `call` on rank 0, on every rank: a value that JSON can hold, or an error of the tree."""
        answer: dict[str, Any] = {}
        if self.is_first:
            try:
                answer = {"value": call()}
            except ElasticCTRError as e:
                answer = {"status": e.exit_status, "error": str(e)}
        answer = self.broadcast(answer)
        if "error" in answer:
            raise class_of_exit(answer["status"])(answer["error"])
        return answer["value"]

    def broadcast_floats(self, values: Tensor) -> Tensor:
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
                f"rank {self.rank} of {self.size}: another rank is gone or does not answer ({_short(e)}); torchrun "
                "restarts the group from the newest checkpoint; without it, start all ranks again"
            ) from e


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise DataError("another rank sent something that is not JSON; do all ranks run one version?") from None


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
