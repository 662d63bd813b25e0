"""Orders to all pservers at once. The caller learns which failed, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from elasticctr.errors import ElasticCTRError
from elasticctr.ps.coordinator.membership import Member
from elasticctr.ps.coordinator.pserver_client import ControlClient

T = TypeVar("T")

# Rows go to and from disk at hundreds of megabytes a second; this is for terabytes on a slow one.
FILES_TIMEOUT_S = 3600.0
ORDER_TIMEOUT_S = 5.0


class PServerFleet:
    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="elasticctr-fleet")

    def load(self, members: Sequence[Member], directory: str | None, era: int) -> dict[int, ElasticCTRError]:
        """All load a checkpoint, or nothing, and refuse work of earlier eras. Returns errors by member id."""
        order = {"op": "load", "directory": directory, "era": era}
        return _failed(self._all(members, lambda m: self._client.control(m.address, order, FILES_TIMEOUT_S)))

    def save(self, members: Sequence[Member], directory: str) -> dict[int, dict[str, Any] | ElasticCTRError]:
        order = {"op": "save", "directory": directory}
        return self._all(members, lambda m: self._client.control(m.address, order, FILES_TIMEOUT_S))

    def set_group(self, members: Sequence[Member], group: Sequence[int]) -> dict[int, ElasticCTRError]:
        """One after the other, until one cannot be reached. While only some know of a newcomer, the others may be a
        step ahead of it; always in the same order, these are always the same, and no two members wait crosswise."""
        for member in members:
            try:
                self._client.set_group(member.address, group, ORDER_TIMEOUT_S)
            except ElasticCTRError as e:
                return {member.id: e}
        return {}

    def order(self, members: Sequence[Member], order: Mapping[str, Any]) -> dict[int, ElasticCTRError]:
        """A small order to each."""
        return _failed(self._all(members, lambda m: self._client.control(m.address, order, ORDER_TIMEOUT_S)))

    def ask(self, member: Member, order: Mapping[str, Any], timeout_s: float = ORDER_TIMEOUT_S) -> dict[str, Any]:
        return self._client.control(member.address, order, timeout_s)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _all(self, members: Sequence[Member], call: Callable[[Member], T]) -> dict[int, T | ElasticCTRError]:
        def one(member: Member) -> T | ElasticCTRError:
            try:
                return call(member)
            except ElasticCTRError as e:
                return e

        return dict(zip([m.id for m in members], self._pool.map(one, members), strict=True))


def _failed(answers: Mapping[int, object]) -> dict[int, ElasticCTRError]:
    return {member: answer for member, answer in answers.items() if isinstance(answer, ElasticCTRError)}
