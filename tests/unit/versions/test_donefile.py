"""Lines of the donefile: what is written is read back, and a flipped byte is damage or nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from elasticctr.versions.donefile import UNFINISHED, DonefileEvent, last_in_effect, parse_donefile

EVENT = DonefileEvent(1, "publish", 7, "delta", 6, 2, "ab" * 32, 1234.5)


def test_a_line_is_read_back() -> None:
    line = EVENT.line()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert parse_donefile(line).events == (EVENT,)


def test_events_have_the_numbers_of_their_lines() -> None:
    log = parse_donefile(b"\n" + EVENT.line() + b"  \r\n" + b'{"half' + UNFINISHED + b"\n" + EVENT.line())
    assert [event.number for event in log.events] == [2, 5]
    assert log.damaged == () and not log.is_unfinished


def test_a_line_without_its_newline_is_not_there_yet() -> None:
    log = parse_donefile(EVENT.line() + EVENT.line()[:-1])
    assert len(log.events) == 1 and log.damaged == () and log.is_unfinished


def test_no_flipped_bit_makes_another_event() -> None:
    good = EVENT.line()
    for place in range(len(good) - 1):
        for bit in range(8):
            line = bytearray(good)
            line[place] ^= 1 << bit
            if line[place] == ord("\n"):
                continue  # two lines, neither of them whole
            log = parse_donefile(bytes(line))
            assert all(replace(event, number=1) == EVENT for event in log.events), (place, bit)
            assert len(log.events) + len(log.damaged) == 1


def test_a_line_of_older_versions_has_no_checksum() -> None:
    said = {key: value for key, value in asdict(EVENT).items() if key != "number"}
    assert parse_donefile(json.dumps(said).encode() + b"\n").events == (EVENT,)


@pytest.mark.parametrize(
    "changes",
    [
        {"event": "retire"},
        {"kind": "patch"},
        {"version": -1},
        {"version": True},
        {"version": "7"},
        {"parent": 6.0},
        {"manifest_sha256": None},
        {"time": "noon"},
    ],
)
def test_values_no_event_has_are_damage(changes: dict[str, object]) -> None:
    said = {key: value for key, value in asdict(EVENT).items() if key != "number"} | changes
    log = parse_donefile(json.dumps(said).encode() + b"\n")
    assert log.events == () and [line.number for line in log.damaged] == [1]


@pytest.mark.parametrize("line", [b"garbage", b"[]", b"null", b"[" * 100_000, b"\xff", b'{"event": "publish"}'])
def test_what_is_no_event_is_damage(line: bytes) -> None:
    assert len(parse_donefile(line + b"\n" + EVENT.line()).damaged) == 1


def test_a_late_publish_turns_nobody_back_and_a_rollback_does() -> None:
    def effective(*steps: tuple[str, int]) -> int:
        events = [replace(EVENT, event=event, version=version) for event, version in steps]  # type: ignore[arg-type]
        return last_in_effect(events).version

    assert effective(("publish", 1), ("publish", 3), ("publish", 2)) == 3
    assert effective(("publish", 3), ("rollback", 1)) == 1
    assert effective(("publish", 3), ("rollback", 1), ("publish", 2)) == 2
