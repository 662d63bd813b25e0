"""Who takes part in a job: names, shards, and when each was last heard. Decides nothing about work or shards.

Not synchronised: the coordinator's lock holds for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticctr.errors import ConfigError, DataError, FailedPrecondition, NotFound

Role = Literal["pserver", "standby", "trainer"]
Phase = Literal["joined", "ready", "lost", "left"]
_ROLES = ("pserver", "standby", "trainer")


@dataclass(slots=True)
class Member:
    id: int
    role: Role  # a standby that was promoted is a pserver
    name: str
    host: str = ""
    pid: int = 0
    address: str = ""  # pservers
    shard: int | None = None
    phase: Phase = "joined"
    seen_s: float = field(default_factory=time.monotonic)
    stats: dict[str, Any] = field(default_factory=dict)
    era: int = 0  # rollbacks it knows of
    was_told: bool = False  # of the newest rollback
    was_told_end: bool = False
    is_asking: bool = False  # for work, so that it can be counted in
    is_counted: bool = False  # in the group of sync and hybrid

    @property
    def is_alive(self) -> bool:
        return self.phase in ("joined", "ready")

    def as_dict(self) -> dict[str, Any]:
        """What the journal keeps."""
        names = ("id", "role", "name", "host", "pid", "address", "shard", "phase")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Member:
        names = ("id", "role", "name", "host", "pid", "address", "shard", "phase")
        return cls(**{name: value[name] for name in names})


class Membership:
    def __init__(self, shards: int, *, standby: bool) -> None:
        self.shards = shards
        self.wants_standby = standby
        self._members: dict[int, Member] = {}
        self._last_id = 0

    def admit(self, body: Mapping[str, Any], era: int) -> tuple[Member, Member | None]:
        """A process that asks to take part: (its member, the one of the same name that it replaces)."""
        role, name = body.get("role"), body.get("name")
        if role not in _ROLES or not isinstance(name, str) or not 0 < len(name) <= 128:
            raise DataError(f"join needs a role ({', '.join(_ROLES)}) and a name, not {role!r} and {name!r}")
        before = next((m for m in self._members.values() if m.is_alive and m.name == name), None)
        member = Member(self._last_id + 1, role, name, str(body.get("host") or ""), _number(body.get("pid")))
        member.era = era
        if role != "trainer":
            member.address = _check_address(body.get("address"))
            wished = body.get("shard")
            self._give_shard(member, None if wished is None else _number(wished), before)
        self._last_id = member.id
        return member, before

    def add(self, member: Member) -> None:
        self._members[member.id] = member
        self._last_id = max(self._last_id, member.id)

    def _give_shard(self, member: Member, wished: int | None, before: Member | None) -> None:
        if wished is not None and not 0 <= wished < self.shards:
            raise ConfigError(f"{member.name}: shard {wished} of {self.shards}; the job has cluster.pservers shards")
        places = range(self.shards) if wished is None else [wished]
        if before is not None and before.shard is not None and wished is None:
            places = [before.shard, *places]
        for shard in places:
            there = [m for m in self.pservers() if m.shard == shard and m is not before]
            # A pserver that finds a standby with everything leaves it the shard and becomes the next standby.
            is_served = any(m.role == "pserver" or m.phase == "ready" for m in there)
            # A standby that comes back to a shard with only an empty standby takes its place.
            is_left = wished is not None and any(m.phase != "ready" for m in there)
            if not is_served and (member.role == "pserver" or is_left):
                member.role, member.shard = "pserver", shard
                return
            if (self.wants_standby or member.role == "standby") and len(there) < 2 and not _has_waiting(there):
                member.role, member.shard = "standby", shard
                return
        served = "a standby each" if member.role == "standby" else "served already"
        where = "every shard has" if wished is None else f"shard {wished} has"
        raise FailedPrecondition(
            f"{member.name}: no place for another {member.role}: the job has {self.shards} pservers"
            f"{' with standbys' if self.wants_standby else ''}, and {where} been taken ({served}); "
            "raise cluster.pservers, or start fewer"
        )

    def get(self, member_id: object) -> Member:
        found = self._members.get(_number(member_id))
        if found is None:
            raise NotFound(f"no member has the id {member_id!r}; join again")
        return found

    def has(self, member_id: object) -> bool:
        return _number(member_id) in self._members

    def primary(self, shard: int) -> Member | None:
        return self._of_shard(shard, "pserver")

    def standby(self, shard: int) -> Member | None:
        return self._of_shard(shard, "standby")

    def _of_shard(self, shard: int, role: Role) -> Member | None:
        return next((m for m in self._members.values() if m.is_alive and m.role == role and m.shard == shard), None)

    def primaries(self) -> list[Member]:
        """By shard, those there are."""
        return [m for m in (self.primary(shard) for shard in range(self.shards)) if m is not None]

    def pservers(self) -> list[Member]:
        return [m for m in self._members.values() if m.is_alive and m.role != "trainer"]

    def trainers(self) -> list[Member]:
        return [m for m in self._members.values() if m.is_alive and m.role == "trainer"]

    def everyone(self) -> list[Member]:
        return list(self._members.values())

    def silent(self, trainer_s: float, pserver_s: float) -> list[Member]:
        """Those not heard for so long."""
        now = time.monotonic()
        return [
            m
            for m in self._members.values()
            if m.is_alive and now - m.seen_s > (trainer_s if m.role == "trainer" else pserver_s)
        ]

    def forget_gone(self, keep: int = 1000) -> None:
        """Drops the oldest that are gone; a job of many days has many."""
        gone = [m.id for m in self._members.values() if not m.is_alive]
        for member_id in gone[:-keep]:
            del self._members[member_id]


def _has_waiting(members: list[Member]) -> bool:
    """Whether there is a standby that stays one."""
    has_primary = any(m.role == "pserver" for m in members)
    return any(m.role == "standby" and (has_primary or m.phase != "ready") for m in members)


def _check_address(address: object) -> str:
    if not isinstance(address, str) or not address or len(address) > 512:
        raise DataError(f"a pserver has to say where it listens, as host:port or unix:/path, not {address!r}")
    return address


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return 0
    try:
        return int(value)
    except ValueError:
        return 0
