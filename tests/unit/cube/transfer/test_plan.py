"""Which steps of a chain each replica is sent."""

from __future__ import annotations

from collections.abc import Iterable

from elasticctr.cube.transfer.instance import Holding, ReplicaVersion
from elasticctr.cube.transfer.plan import choose_forms
from elasticctr.versions.feed import Link


def chain(*versions: int) -> list[Link]:
    return [Link(v, p, f"id{v}", 1) for v, p in zip(versions, (0, *versions), strict=False)]


def holding(*versions: int, parents: dict[int, int] | None = None, state: str = "ready") -> Holding:
    held = {v: ReplicaVersion(v, (parents or {}).get(v, 0), state, f"id{v}", True, False) for v in versions}
    return Holding(versions[-1] if versions else 0, 0, held)


def forms(links: list[Link], *holdings: Holding, built: Iterable[int] = (), most: int = 16) -> list[tuple[int, str]]:
    return [(link.version, form) for link, form in choose_forms(links, holdings, set(built), most)]


def test_a_base_is_sent_as_published() -> None:
    assert forms(chain(1), holding()) == [(1, "published")]


def test_a_delta_goes_alone_to_those_who_hold_its_parent() -> None:
    assert forms(chain(1, 2), holding(1), holding(1)) == [(2, "published")]


def test_the_newest_link_all_hold_decides() -> None:
    assert forms(chain(1, 2, 3, 4), holding(1, 2, 3), holding(1, 2)) == [(3, "published"), (4, "published")]


def test_without_a_common_link_one_base_is_sent() -> None:
    assert forms(chain(1, 2, 3), holding(), holding(1, 2)) == [(3, "compacted")]


def test_a_chain_that_is_already_built_is_sent_unchanged() -> None:
    assert forms(chain(1, 2), holding(), built={1, 2}) == [(1, "published"), (2, "published")]


def test_a_version_that_all_hold_needs_no_builds() -> None:
    assert forms(chain(1, 2), holding(1, 2), holding(2)) == []


def test_other_contents_under_the_same_number_do_not_count() -> None:
    other = Holding(1, 0, {1: ReplicaVersion(1, 0, "ready", "another", True, False)})
    assert forms(chain(1, 2), other) == [(2, "compacted")]


def test_a_version_that_failed_or_has_no_files_does_not_count() -> None:
    assert forms(chain(1, 2), holding(1, state="failed")) == [(2, "compacted")]
    unstored = Holding(1, 0, {1: ReplicaVersion(1, 0, "ready", "id1", False, False)})
    assert forms(chain(1, 2), unstored) == [(2, "compacted")]


def test_deltas_are_counted_from_the_base_a_replica_really_has() -> None:
    deep = holding(1, 2, 3, parents={2: 1, 3: 2})
    assert forms(chain(1, 2, 3, 4), deep, most=3) == [(4, "published")]
    assert forms(chain(1, 2, 3, 4), deep, most=2) == [(4, "compacted")]
    assert forms(chain(1, 2, 3, 4), holding(3), most=2) == [(4, "published")]


def test_without_replicas_something_complete_is_built() -> None:
    assert forms(chain(1, 2)) == [(2, "compacted")]
    assert forms(chain(1)) == [(1, "published")]


def test_a_base_that_failed_under_several_deltas_is_sent_again() -> None:
    """The middle one is held, but without its base."""
    held = {v: ReplicaVersion(v, v - 1, "failed" if v == 1 else "stored", f"id{v}", True, False) for v in (1, 2, 3)}
    assert forms(chain(1, 2, 3), Holding(0, 0, held)) == [(3, "compacted")]
    assert forms(chain(1, 2, 3), Holding(0, 0, {v: held[v] for v in (2, 3)})) == [(3, "compacted")]


def test_what_answers_is_not_replaced_in_the_middle_of_a_chain() -> None:
    active = Holding(
        2,
        0,
        {1: ReplicaVersion(1, 0, "ready", "id1", True, False), 2: ReplicaVersion(2, 1, "ready", "old", True, False)},
    )
    assert forms(chain(1, 2, 3), active, built={1, 2, 3}) == [(3, "compacted")]
    assert forms(chain(1, 2), active) == [(2, "published")]
