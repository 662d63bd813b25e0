"""Runs while the director waits: drops silent members, promotes standbys, forms the group of sync and hybrid."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.ps.coordinator.coordinator import GROUPED, Coordinator
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.membership import Member
from elasticctr.ps.coordinator.stalls import APART_S, HUNG_S, SLOW_S, GroupWatch, Stall

_GROUP_AGAIN_S = 1.0
_FOLLOW_AGAIN_S = 1.0
_STALL_S = 1.0
_ASK_S = 1.0


class ServerLost(Exception):
    """No pserver serves a shard, and no standby can take over."""

    def __init__(self, shard: int, reason: str) -> None:
        self.shard = shard
        super().__init__(reason)


class FleetSupervisor:
    def __init__(self, coordinator: Coordinator, fleet: PServerFleet) -> None:
        self._at = coordinator
        self._fleet = fleet
        self._group: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # its members, and the pservers that know
        self._group_again_s = 0.0
        self._following: dict[int, tuple[int, int]] = {}  # standby -> (primary, era)
        self._follow_again_s = 0.0
        self._ran_s = time.monotonic()
        self._watch = GroupWatch()
        self._was_told_slow = False

    def run(self, *, is_serving: bool) -> None:
        """`is_serving`: every shard is supposed to be served. Raises ServerLost if one is not."""
        self._drop_silent()
        if not is_serving:
            return
        self._check_suspects()
        self._check_shards()
        self._follow()
        self._set_group()
        self._check_group()

    def count_all_in(self) -> None:
        """Every trainer there is belongs to the group from its first step on. REQUIRES: the lock."""
        for member in self._at.members.trainers():
            member.is_asking = True

    def _drop_silent(self) -> None:
        at = self._at
        now = time.monotonic()
        with at.lock:
            if now - self._ran_s > _STALL_S:  # this process itself was stopped
                for member in at.members.everyone():
                    member.seen_s += now - self._ran_s
            silent = at.members.silent(at.cluster.lease_s, at.cluster.pserver_wait_s)
        for member in silent:
            if member.role != "trainer" and self._answers(member):
                continue
            limit = at.cluster.lease_s if member.role == "trainer" else at.cluster.pserver_wait_s
            with at.lock:
                at.drop(member, f"silent for {limit:g} s", "lost")
        self._ran_s = time.monotonic()

    def _answers(self, member: Member) -> bool:
        """Whether a pserver whose beats do not arrive still answers."""
        try:
            self._fleet.ask(member, {"op": "stats"}, _ASK_S)
        except (Unavailable, DeadlineExceeded):
            return False
        except ElasticCTRError:
            pass
        member.seen_s = time.monotonic()
        return True

    def _check_suspects(self) -> None:
        """Asks pservers that trainers cannot reach; gives up only those that refuse the connection."""
        at = self._at
        with at.lock:
            shards, at.suspects = sorted(at.suspects), set()
            asked = [m for m in (at.members.primary(s) for s in shards if s < at.members.shards) if m is not None]
        for member in asked:
            try:
                self._fleet.ask(member, {"op": "stats"}, 2.0)
            except Unavailable as e:
                with at.lock:
                    at.drop(member, str(e), "lost")
            except ElasticCTRError:
                continue

    def _check_shards(self) -> None:
        at = self._at
        for shard in range(at.members.shards):
            with at.lock:
                primary, standby = at.members.primary(shard), at.members.standby(shard)
                is_served = primary is not None and primary.era == at.era
            if is_served:
                continue
            if primary is not None:
                raise ServerLost(shard, f"{primary.name} was started again and holds nothing")
            if standby is None or not self._promote(standby):
                raise ServerLost(shard, f"no pserver serves shard {shard}")

    def _promote(self, standby: Member) -> bool:
        """The standby takes over, if it has everything its primary acknowledged."""
        at = self._at
        if standby.era != at.era or standby.shard is None or not at.in_sync.get(standby.shard):
            return False
        try:
            answer = self._take_over(standby)
        except ElasticCTRError as e:
            with at.lock:
                at.drop(standby, f"could not take over: {e}", "lost")
            return False
        with at.lock:
            at.journal.append("promote", {"id": standby.id, "shard": standby.shard})
            standby.role, standby.phase = "pserver", "ready"
            at.in_sync[standby.shard] = False
            at.generation += 1
            at.note("promote", {"name": standby.name, "shard": standby.shard, "step": answer.get("step")})
        self._group = None
        return True

    def fill(self, shards: Sequence[int]) -> None:
        """No pserver serves these shards: their standbys take over, now if they have everything, else as empty
        primaries from the next load on."""
        at = self._at
        for shard in shards:
            with at.lock:
                standby = at.members.standby(shard)
            if standby is None or self._promote(standby) or not standby.is_alive:
                continue
            with at.lock:
                at.journal.append("appoint", {"id": standby.id, "shard": shard})
                standby.role, standby.phase, standby.era = "pserver", "joined", -1
                at.generation += 1
                at.note("appoint", {"name": standby.name, "shard": shard})

    def _take_over(self, standby: Member) -> dict[str, Any]:
        try:
            return self._fleet.ask(standby, {"op": "promote"})
        except (Unavailable, DeadlineExceeded):
            # The answer may be lost: ask for its role.
            found = self._fleet.ask(standby, {"op": "stats"})
            if found.get("role") != "primary" or not found.get("is_ready"):
                raise
            return found

    def _follow(self) -> None:
        """Orders standbys to follow their primaries, after every load. Once caught up they may be promoted."""
        at = self._at
        now = time.monotonic()
        if now < self._follow_again_s:
            return
        with at.lock:
            standbys = [m for m in at.members.pservers() if m.role == "standby"]
            pairs = [(m, at.members.primary(m.shard)) for m in standbys if m.shard is not None]
        for standby, primary in pairs:
            if primary is None or standby.era == at.era:
                continue
            self._follow_again_s = now + _FOLLOW_AGAIN_S
            try:
                if self._following.get(standby.id) != (primary.id, at.era):
                    self._fleet.ask(standby, {"op": "follow", "primary": primary.address})
                    self._following[standby.id] = (primary.id, at.era)
                has_all = self._fleet.ask(standby, {"op": "stats"}).get("is_caught_up")
                if has_all and at.in_sync.get(standby.shard or 0):
                    with at.lock:
                        standby.era, standby.phase = at.era, "ready"
                        at.generation += 1
                        at.note("standby_ready", {"name": standby.name, "shard": standby.shard})
            except ElasticCTRError as e:
                at.note("warning", {"text": f"{standby.name} does not follow yet: {e}"})
                self._following.pop(standby.id, None)

    def _set_group(self) -> None:
        """Sends the group to every pserver, before any newcomer gets work."""
        at = self._at
        if at.cluster.strategy not in GROUPED:
            return
        with at.lock:
            trainers = at.members.trainers()
            wanting = [m for m in trainers if m.is_counted or m.is_asking]
            group = tuple(sorted(m.id for m in wanting))
            servers = at.members.primaries()
        told = (group, tuple(m.id for m in servers))
        is_told = told == self._group and all(m.is_counted for m in wanting)
        if is_told or time.monotonic() < self._group_again_s:
            return
        failed = self._fleet.set_group(servers, group)
        if failed:
            self._group_again_s = time.monotonic() + _GROUP_AGAIN_S
            return
        self._group = told
        with at.lock:
            for member in wanting:
                member.is_counted = member.is_alive

    def _check_group(self) -> None:
        """A group whose members wait for each other goes back to the checkpoint; one waits for a member that is there
        but sends nothing, and in the end drops it."""
        at = self._at
        if at.cluster.strategy not in GROUPED:
            return
        with at.lock:
            primaries = at.members.primaries()
            stall = self._watch.look(time.monotonic(), {m.shard or 0: m.stats for m in primaries}, at.era)
            if stall is None or len(primaries) < at.members.shards:
                self._was_told_slow = False
                return
            if not stall.absent and stall.seconds > max(APART_S, 3 * at.cluster.lease_s):
                at.note("stalled", {"text": str(stall)})
                for member in primaries:
                    member.era = -1  # all load again, so that all begin with the same step
                raise ServerLost(primaries[0].shard or 0, str(stall))
            if stall.absent:
                self._handle_absent(stall)

    def _handle_absent(self, stall: Stall) -> None:
        """REQUIRES: the lock."""
        at = self._at
        absent = [m for m in at.members.trainers() if m.id in stall.absent]
        if stall.seconds > SLOW_S and not self._was_told_slow:
            self._was_told_slow = True
            names = ", ".join(m.name for m in absent)
            at.note("stalled", {"text": f"{stall}; {names} beats but sends no gradients: see its log"})
        if stall.seconds > HUNG_S:
            for member in absent:
                at.drop(member, f"sent no gradients for {stall.seconds:.0f} s while its group waited", "lost")
                member.is_asking = False
