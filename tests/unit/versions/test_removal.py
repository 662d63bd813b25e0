"""What is removed and what never is; remains of killed publishers; when this cannot be decided."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.unit.versions.synthetic import publish
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import FailedPrecondition, Unauthorized, Unavailable
from elasticctr.storage.store import LocalStore
from elasticctr.versions import Repository
from elasticctr.versions.donefile import UNFINISHED, DonefileEvent, parse_donefile
from elasticctr.versions.lease import TTL_S, PublisherLease
from elasticctr.versions.removal import REMOVING, carry_out, plan_removal, prune
from elasticctr.versions.rollback import rollback
from elasticctr.versions.writer import next_version


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """1 ← 2 ← 3, 4 ← 5, 6, 7, all of them old"""
    repository = Repository(str(tmp_path / "repo"))
    one = publish(repository, "ctr", 1, [1])
    two = publish(repository, "ctr", 2, [2], [], one)
    publish(repository, "ctr", 3, [3], [], two)
    four = publish(repository, "ctr", 4, [4])
    publish(repository, "ctr", 5, [5], [], four)
    publish(repository, "ctr", 6, [6])
    publish(repository, "ctr", 7, [7])
    make_old(repository)
    return repository


def make_old(repository: Repository) -> None:
    for path in Path(repository.url).rglob("*"):
        os.utime(path, (1, 1))


def donefile(repository: Repository) -> Path:
    return Path(repository.url, "ctr", "donefile")


def files(repository: Repository) -> dict[str, bytes]:
    found = Path(repository.url).rglob("*")
    return {str(path): path.read_bytes() for path in found if path.is_file() and path.name != "donefile"}


def left(repository: Repository) -> list[int]:
    return [manifest.version for manifest in repository.versions("ctr")]


def clean(repository: Repository) -> list[int]:
    """The first step of every publisher."""
    with PublisherLease(repository.store, "ctr") as lease:
        plan = plan_removal(repository, "ctr")
        carry_out(repository, plan, lease)
    return plan.going


def reasons(repository: Repository, keep: int | None) -> dict[int, str]:
    return {fate.version: fate.why for fate in plan_removal(repository, "ctr", keep).fates if not fate.goes}


def test_the_newest_stay_and_the_one_before_the_live_one(repository: Repository) -> None:
    assert prune(repository, "ctr", 1).going == [1, 2, 3, 4, 5]
    assert left(repository) == [6, 7]
    assert sorted(p.name for p in Path(repository.url, "ctr").iterdir()) == ["6", "7", "donefile"]


def test_what_a_kept_version_stands_on_stays(repository: Repository) -> None:
    assert plan_removal(repository, "ctr", 3).going == [1, 2, 3]
    assert reasons(repository, 3)[4] == "version 5 depends on it"
    assert left(repository) == [1, 2, 3, 4, 5, 6, 7]


def test_the_live_version_stays_however_old(repository: Repository) -> None:
    rollback(repository, "ctr", 2)
    assert prune(repository, "ctr", 1).going == [3, 4, 5, 6]
    assert left(repository) == [1, 2, 7] and repository.live("ctr").version == 2


@pytest.mark.promise("a pruned version is pinned by a server", "pinned versions and their chains stay")
def test_pinned_versions_stay_while_pinned(repository: Repository) -> None:
    repository.pin("ctr", "server", [3], ttl_s=60)
    repository.pin("ctr", "gone", [5], ttl_s=-1)
    assert prune(repository, "ctr", 1).going == [4, 5]
    repository.unpin("ctr", "server")
    assert prune(repository, "ctr", 1).going == [1, 2, 3]


def test_young_versions_stay(repository: Repository) -> None:
    os.utime(Path(repository.url, "ctr", "3", "manifest.json"))
    assert plan_removal(repository, "ctr", 1).going == [4, 5]
    assert reasons(repository, 1)[3] == "published in the last 10 minutes"
    assert plan_removal(repository, "ctr", 1, now=time.time() + TTL_S + 60).going == [1, 2, 3, 4, 5]


@pytest.mark.promise(
    "a publisher is killed, or paused, before it announced its version",
    "its directory is removed only if it was not written to for the time of a lease, and never if it has a manifest",
)
def test_leftovers_of_killed_publishers_are_removed_when_old(repository: Repository) -> None:
    store = repository.store
    store.write_bytes("ctr/8/sparse/main/part-00000.arrow", b"half")
    store.write_bytes("ctr/9/manifest.json", b"{}")  # complete, but never announced
    store.write_bytes("ctr/10/schema.json", b"{}")
    store.write_bytes(f"ctr/4/{REMOVING}", b"")  # half removed
    store.delete("ctr/4/manifest.json")
    store.delete("ctr/5/manifest.json")  # damage, as far as anybody knows
    store.write_bytes("ctr/notes/keep.txt", b"not ours")
    store.write_bytes("ctr/0012/keep.txt", b"not ours")
    make_old(repository)
    os.utime(Path(repository.url, "ctr/10/schema.json"))
    repository.pin("ctr", "server", [11], ttl_s=60)
    store.write_bytes("ctr/11/schema.json", b"{}")
    os.utime(Path(repository.url, "ctr/11/schema.json"), (1, 1))
    os.utime(Path(repository.url, "ctr/11"), (1, 1))
    why = reasons(repository, None)
    assert "never announced" in why[9] and "last 10 minutes" in why[10] and "manifest.json is gone" in why[5]
    assert why[11] == "pinned by server" and why[4] == "version 5 depends on it"
    assert clean(repository) == [8]
    store.delete_tree("ctr/5")
    assert clean(repository) == [4]
    assert store.exists("ctr/notes/keep.txt") and store.exists("ctr/0012/keep.txt")
    assert left(repository) == [1, 2, 3, 6, 7] and next_version(repository, "ctr") == 12


@pytest.mark.promise(
    "the donefile is lost", "publish and prune refuse and remove nothing; `fsck --rebuild` recreates it"
)
@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_lost_donefile_removes_nothing(repository: Repository, is_pinned: bool) -> None:
    if is_pinned:
        repository.pin("ctr", "server", [1, 2, 3], ttl_s=600)
    donefile(repository).unlink()
    before = files(repository)
    for remove in (lambda: prune(repository, "ctr", 1), lambda: clean(repository)):
        with pytest.raises(FailedPrecondition, match=r"donefile is lost.*elasticctr versions fsck"):
            remove()
    with pytest.raises(FailedPrecondition, match=r"no donefile.*nothing was published.*fsck.*--rebuild"):
        next_version(repository, "ctr")
    assert files(repository) == before


@pytest.mark.promise(
    "a byte of the donefile flips", "readers follow the good lines, nothing is removed, and the line is named"
)
@pytest.mark.parametrize("place", range(0, 250, 7))
def test_a_flipped_byte_in_the_donefile_removes_nothing(repository: Repository, place: int) -> None:
    data = bytearray(donefile(repository).read_bytes())
    end = data.index(b"\n")
    if place >= end:
        place = end - 1
    data[place] ^= 0x01
    donefile(repository).write_bytes(bytes(data))
    before = files(repository)
    try:
        going = plan_removal(repository, "ctr").going
    except FailedPrecondition as e:
        assert "line" in str(e) and "fsck" in str(e)
        going = clean_or_refuse(repository)
    assert going == [] and files(repository) == before
    assert repository.live("ctr").version == 7
    assert next_version(repository, "ctr") >= 8


def clean_or_refuse(repository: Repository) -> list[int]:
    for remove in (lambda: clean(repository), lambda: prune(repository, "ctr", 1)):
        with pytest.raises(FailedPrecondition):
            remove()
    return []


def test_a_damaged_line_is_reported_once(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    with donefile(repository).open("ab") as file:
        file.write(b"garbage\n\n")
    for _ in range(3):
        assert len(repository.events("ctr")) == 7
    assert capsys.readouterr().err.count("line 8 is damaged") == 1
    with pytest.raises(FailedPrecondition, match=r"8 \(not an event in JSON\)"):
        plan_removal(repository, "ctr")


def test_an_unfinished_last_line_is_not_damage(repository: Repository) -> None:
    with donefile(repository).open("ab") as file:
        file.write(b'{"event": "publish", "vers')
    assert plan_removal(repository, "ctr", 1).going == [1, 2, 3, 4, 5]
    rollback(repository, "ctr")
    assert UNFINISHED + b"\n" in donefile(repository).read_bytes()
    assert plan_removal(repository, "ctr", 3).going == [1, 2, 3]
    assert [event.event for event in repository.events("ctr")][-1] == "rollback"


def test_lines_without_a_checksum_are_read(repository: Repository) -> None:
    lines = [json.loads(line) for line in donefile(repository).read_bytes().splitlines()]
    old = b"".join(json.dumps({k: v for k, v in line.items() if k != "crc"}).encode() + b"\n" for line in lines)
    donefile(repository).write_bytes(old)
    assert [event.version for event in repository.events("ctr")] == [1, 2, 3, 4, 5, 6, 7]
    assert prune(repository, "ctr", 1).going == [1, 2, 3, 4, 5]


def test_every_changed_byte_of_a_line_is_noticed_or_harmless() -> None:
    event = DonefileEvent(1, "publish", 17, "delta", 16, 5, "ab" * 32, 1794747816.75)
    line = event.line()
    for place in range(len(line) - 1):
        for bit in range(8):
            changed = bytearray(line)
            changed[place] ^= 1 << bit
            log = parse_donefile(bytes(changed))
            assert log.damaged or not log.events or log.events == (event,), bytes(changed)


@pytest.mark.parametrize("error", [Unavailable("no answer"), Unauthorized("no")])
def test_a_donefile_that_cannot_be_read_removes_nothing(repository: Repository, error: Exception) -> None:
    class Failing(LocalStore):
        def read_bytes(self, name: str) -> bytes:
            if name.endswith("donefile"):
                raise error
            return super().read_bytes(name)

    failing = Repository(repository.url, Failing(repository.url))
    with pytest.raises((Unavailable, FailedPrecondition), match="no"):
        plan_removal(failing, "ctr", 1)
    with pytest.raises(type(error)):
        next_version(failing, "ctr")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"versions": [1]}', b'{"versions": 1, "expires": 99999999999}'])
@pytest.mark.promise("a pin cannot be read", "nothing is removed, since it may protect any version")
def test_an_unreadable_pin_protects_everything(repository: Repository, text: bytes) -> None:
    repository.store.write_bytes("ctr/pins/server.json", text)
    with pytest.raises(FailedPrecondition, match=r"server\.json cannot be read.*nothing is removed.*fsck"):
        prune(repository, "ctr", 1)
    assert left(repository) == [1, 2, 3, 4, 5, 6, 7]


def test_a_version_with_a_damaged_manifest_keeps_its_chain(repository: Repository) -> None:
    rollback(repository, "ctr", 3)
    rollback(repository, "ctr", 7)
    manifest = Path(repository.url, "ctr", "5", "manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 1', b'"rows": 2'))
    make_old(repository)
    why = reasons(repository, 1)
    assert "not the announced one" in why[5] and why[4] == "version 5 depends on it"


def test_a_late_line_brings_nothing_back_and_loses_nothing(repository: Repository) -> None:
    """A publisher paused for hours appends its line: its files still exist."""
    late = publish(repository, "ctr", 8, [8])
    data = donefile(repository).read_bytes()
    line = data.splitlines(keepends=True)[-1]
    donefile(repository).write_bytes(data[: -len(line)])
    make_old(repository)
    publish(repository, "ctr", 9, [9])
    assert clean(repository) == []
    repository.store.append("ctr/donefile", line)
    assert repository.live("ctr").version == 9 and repository.manifest("ctr", 8) == late


def test_dry_run_shows_what_would_go_and_why(repository: Repository) -> None:
    before = files(repository)
    told = CliRunner().invoke(app, ["versions", "prune", repository.url, "--keep", "3", "--dry-run", "--json"])
    plan = json.loads(told.stdout)["plan"]
    assert [entry["version"] for entry in plan if entry["goes"]] == [1, 2, 3]
    assert {entry["version"]: entry["why"] for entry in plan}[4] == "version 5 depends on it"
    shown = CliRunner().invoke(app, ["versions", "prune", repository.url, "--keep", "3", "--dry-run"]).stdout
    assert "ctr\t7\tstays\tlive" in shown and "ctr\t1\tgoes\tpast the newest 3" in shown
    assert files(repository) == before
    assert CliRunner().invoke(app, ["versions", "prune", repository.url, "--dry-run"]).exit_code == 2
    pruned = CliRunner().invoke(app, ["versions", "prune", repository.url, "--keep", "3", "--json"])
    assert [entry["version"] for entry in json.loads(pruned.stdout)["removed"]] == [1, 2, 3]
