"""Whether a group of sync or hybrid still steps, judging by what its pservers report. Decides nothing.

A pserver waits until each member has a push with it. A member that one pserver misses while its push waits at another
cannot send the next one before that is answered: where every missing member waits somewhere, none ever will. A member
that all pservers miss may only be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

APART_S = 30.0  # a push may be on its way for a while, over a network that comes and goes
SLOW_S = 60.0
HUNG_S = 300.0


@dataclass(frozen=True, slots=True)
class Stall:
    """A group that has not stepped for `seconds`."""

    seconds: float
    missing: dict[int, tuple[int, ...]]  # by shard: members it waits for
    absent: frozenset[int]  # members that every pserver waits for; none: members wait for each other

    def __str__(self) -> str:
        each = "; ".join(f"pserver {shard} waits for {list(members)}" for shard, members in self.missing.items())
        return f"the group has not stepped for {self.seconds:.0f} s: {each}"


class GroupWatch:
    """Given what pservers report, again and again; remembers since when nothing changed."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._since_s = 0.0

    def look(self, now_s: float, stats: Mapping[int, Mapping[str, Any]], era: int) -> Stall | None:
        """`stats` by shard, of all shards. None: some pserver steps or has nothing to wait for."""
        missing: dict[int, tuple[int, ...]] = {}
        rounds = []
        for shard, said in stats.items():
            waits_for = tuple(said.get("missing") or ())
            if said.get("era") != era or not waits_for:
                self._seen = ()
                return None
            missing[shard] = waits_for
            rounds.append(said.get("rounds"))
        seen = (era, tuple(missing.items()), tuple(rounds))
        if not missing or seen != self._seen:
            self._seen, self._since_s = seen, now_s
            return None
        return Stall(now_s - self._since_s, missing, frozenset.intersection(*map(frozenset, missing.values())))
