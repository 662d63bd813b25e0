"""Who gets which shard as what."""

from __future__ import annotations

from elasticctr.ps.coordinator.membership import Member, Membership


def join(members: Membership, role: str, name: str) -> Member:
    member, before = members.admit({"role": role, "name": name, "address": "h:1", "shard": 0}, era=1)
    if before is not None:
        before.phase = "lost"
    members.add(member)
    return member


def test_a_standby_that_comes_first_waits_for_its_pserver() -> None:
    members = Membership(1, standby=True)
    standby = join(members, "standby", "standby-0")
    assert (standby.role, members.primary(0)) == ("standby", None)
    assert join(members, "pserver", "pserver-0") is members.primary(0)
    assert members.standby(0) is standby


def test_a_pserver_whose_standby_took_over_is_the_next_standby() -> None:
    members = Membership(1, standby=True)
    first, standby = join(members, "pserver", "pserver-0"), join(members, "standby", "standby-0")
    standby.phase = "ready"
    again = join(members, "pserver", "pserver-0")
    assert first.phase == "lost" and again.role == "standby"
    standby.role = "pserver"  # promoted
    assert (members.primary(0), members.standby(0)) == (standby, again)


def test_a_shard_with_an_empty_standby_only_is_served_by_whoever_comes_next() -> None:
    """Roles have changed hands: what was started as the standby served, died, and its own standby was not ready."""
    members = Membership(1, standby=True)
    promoted = join(members, "standby", "standby-0")
    promoted.role, promoted.phase = "pserver", "ready"
    waiting = join(members, "pserver", "pserver-0")
    assert waiting.role == "standby"
    again = join(members, "standby", "standby-0")
    assert str(promoted.phase) == "lost"
    assert (members.primary(0), members.standby(0)) == (again, waiting)


def test_of_those_that_are_gone_the_newest_are_remembered() -> None:
    members = Membership(1, standby=False)
    joined = [join(members, "trainer", f"trainer-{i}") for i in range(10)]
    for member in joined[:8]:
        member.phase = "lost"
    members.forget_gone(keep=3)
    assert members.everyone() == joined[5:]
