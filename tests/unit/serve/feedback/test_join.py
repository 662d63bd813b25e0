"""Every way in which a request and its clicks can match or miss, repeatedly, killed at every step."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serve.feedback.writing import HOUR, write_requests

from elasticctr.data import Dataset, ReadOptions, Schema
from elasticctr.errors import AlreadyExists, ConfigError, FailedPrecondition, Unavailable
from elasticctr.serve.feedback import join as join_module
from elasticctr.serve.feedback import state as state_module
from elasticctr.serve.feedback.join import JoinOptions, join
from elasticctr.serve.feedback.state import JoinState

USER, ITEM = 2**64 - 1, 100


def candidates(count: int, first: int = ITEM) -> list[dict[str, list[int]]]:
    return [{"user": [USER], "item": [first + i]} for i in range(count)]


def events(path: Path, *rows: tuple[Any, ...], mode: str = "w") -> str:
    with path.open(mode) as file:
        for row in rows:
            file.write(json.dumps(dict(zip(("id", "index", "time"), row, strict=False))) + "\n")
    return str(path)


def lines(out: Path) -> list[str]:
    return sorted(line for path in out.glob("[0-9]*/*/part-*") for line in path.read_text().splitlines())


def options(tmp_path: Path, clicks: str, **more: Any) -> JoinOptions:
    return JoinOptions(requests=(str(tmp_path / "log"),), clicks=(clicks,), out=tmp_path / "out", **more)


def test_each_way_a_click_can_go(tmp_path: Path) -> None:
    write_requests(
        tmp_path / "log",
        [
            (HOUR + 10, "a", candidates(3)),
            (HOUR + 20, "b", candidates(1, 200)),
            (HOUR + 20, "a", candidates(3)),  # a retry, logged by another server
            (HOUR + 4000, "c", candidates(2, 300)),
        ],
    )
    clicks = events(
        tmp_path / "clicks.jsonl",
        ("a", 1, HOUR + 100),
        ("a", 1, HOUR + 101),  # twice
        ("a", 3, HOUR + 100),  # there is no fourth candidate
        ("b", 0, HOUR + 20 + 1801),  # after the window
        ("c", 0, HOUR + 3000),  # long before its request
        ("c", 1, HOUR + 3997),  # before it, but clocks differ
        ("nobody", 0, HOUR + 30),
    )
    with Path(clicks).open("a") as file:
        file.write('{"id": "a"}\n[1]\nnot json\n{"id": "a", "time": 1e300}\n')
    result = join(options(tmp_path, clicks, keep_late=True))
    assert lines(tmp_path / "out") == sorted(
        [
            f"1 0 {USER}:user 100:item",
            f"1 1 {USER}:user 101:item",
            f"1 0 {USER}:user 102:item",
            f"1 0 {USER}:user 200:item",
            f"1 0 {USER}:user 300:item",
            f"1 1 {USER}:user 301:item",
        ]
    )
    wanted = {
        "requests": 4, "samples": 6, "clicked": 2, "clicks": 7, "duplicate_requests": 1, "duplicate_clicks": 1,
        "late_clicks": 1, "early_clicks": 1, "unknown_clicks": 1, "bad_index": 1, "bad_events": 4, "bad_requests": 0,
    }  # fmt: skip
    assert {name: result[name] for name in wanted} == wanted
    assert (tmp_path / "out/20261115/13/donefile").exists()
    assert (tmp_path / "out/20261115/14/donefile").exists()
    late = [json.loads(line) for line in (tmp_path / "out/_late/clicks-000001.jsonl").read_text().splitlines()]
    assert Counter(event["why"] for event in late) == Counter(
        ["late_clicks", "early_clicks", "unknown_clicks", "bad_index"]
    )
    with pytest.raises(AlreadyExists):
        join(options(tmp_path, clicks))


def test_negatives_at_once_and_clicks_when_they_come(tmp_path: Path) -> None:
    """A click is a negative in one log and a positive in the other; together they are complete."""
    write_requests(tmp_path / "log", [(HOUR + 10, "a", candidates(3)), (HOUR + 20, "b", candidates(1, 200))])
    clicks = events(tmp_path / "clicks.jsonl", ("a", 1, HOUR + 10), ("a", 1, HOUR + 11), ("b", 0, HOUR + 9000))
    given = options(tmp_path, clicks, window_s=86400)
    whole = join(replace(given, out=tmp_path / "all"))
    assert (whole["samples"], whole["clicked"]) == (4, 2)
    shown = join(replace(given, out=tmp_path / "shown", window_s=1, write="negatives"))
    assert (shown["samples"], shown["clicked"]) == (4, 0)
    assert lines(tmp_path / "shown") == sorted("1 0" + line[3:] for line in lines(tmp_path / "all"))
    clicked = join(replace(given, out=tmp_path / "clicked", write="clicks", state=tmp_path / "state", now_s=HOUR + 1e6))
    assert (clicked["samples"], clicked["clicked"], clicked["duplicate_clicks"]) == (2, 2, 1)
    assert lines(tmp_path / "clicked") == [line for line in lines(tmp_path / "all") if line.startswith("1 1 ")]
    with pytest.raises(FailedPrecondition, match="write 'clicks'"):
        join(replace(given, out=tmp_path / "clicked", state=tmp_path / "state"))


def test_the_data_layer_reads_it(tmp_path: Path) -> None:
    write_requests(tmp_path / "log", [(HOUR + i, f"r{i}", candidates(2, 10 * i)) for i in range(50)])
    clicks = events(tmp_path / "c.jsonl", *[(f"r{i}", 1, HOUR + i + 5) for i in range(0, 50, 5)])
    join(options(tmp_path, clicks))
    schema = Schema.model_validate({"format": "feasign", "slots": [{"name": "user"}, {"name": "item"}]})
    reading = ReadOptions(start="20261115/13", end="20261115/13", donefile="donefile", on_bad="fail")
    dataset = Dataset(str(tmp_path / "out/{date}/{hour}"), schema, reading)
    (batch,) = list(dataset.iterate(batch_size=1000))
    assert len(batch) == 100
    items = batch.slot(1)[0].tolist()
    clicked = {item for item, label in zip(items, batch.labels[:, 0], strict=True) if label}
    assert clicked == {10 * i + 1 for i in range(0, 50, 5)}
    assert set(batch.slot(0)[0].tolist()) == {USER}


def test_csv_and_impressions(tmp_path: Path) -> None:
    write_requests(tmp_path / "log", [(HOUR, "a", candidates(4)), (HOUR, 'b,"x', candidates(2, 200))])
    clicks = tmp_path / "clicks.csv"
    clicks.write_text("time,id,index\n2026-11-15T13:00:01Z,a,2\n")
    shown = tmp_path / "shown.csv"
    shown.write_text(f'id,time,index,place\na,{HOUR + 1},0,x\na,{HOUR + 9999},1,x\n"b,""x",{HOUR},1,\nbad\n')
    result = join(options(tmp_path, str(clicks), impressions=(str(shown),)))
    assert lines(tmp_path / "out") == [
        f"1 0 {USER}:user 100:item",
        f"1 0 {USER}:user 201:item",
        f"1 1 {USER}:user 102:item",  # a click shows that it was shown
    ]
    assert (result["not_shown"], result["bad_events"], result["impressions"]) == (3, 1, 3)


def test_run_again_and_again_puts_each_request_out_once(tmp_path: Path) -> None:
    clicks = tmp_path / "clicks.jsonl"
    clicks.write_text("")
    seen: list[str] = []
    for minute in range(0, 120, 7):
        now = HOUR + 60 * minute
        write_requests(tmp_path / "log", [(now - 30, f"r{minute}", candidates(2, minute * 10))])
        if minute >= 14:
            events(clicks, (f"r{minute - 14}", 1, now - 20), mode="a")
        result = join(options(tmp_path, str(clicks), state=tmp_path / "state", window_s=1800, now_s=now))
        seen += [line for name in result["files"] for line in Path(name).read_text().splitlines()]
        for hour, end in (("13", 3600), ("14", 7200)):
            assert (tmp_path / "out/20261115" / hour / "donefile").exists() == (now - 1920 >= HOUR + end)
    assert seen
    assert sorted(seen) == lines(tmp_path / "out")
    result = join(options(tmp_path, str(clicks), state=tmp_path / "state", window_s=1800, now_s=HOUR + 86400))
    total = result["total"]
    assert (total["requests"], total["samples"], total["clicked"]) == (18, 36, 16)
    assert total["late_clicks"] == total["unknown_clicks"] == total["late_requests"] == 0
    found = lines(tmp_path / "out")
    assert len(set(found)) == len(found) == 36
    assert {line.split()[3] for line in found if line.startswith("1 1 ")} == {
        f"{minute * 10 + 1}:item" for minute in range(0, 112, 7)
    }
    assert result["waiting_bytes"] == 0
    # Lines that arrive after their hour was written are counted and change nothing.
    write_requests(tmp_path / "log", [(HOUR, "behind", candidates(1)), (HOUR, "r0", candidates(2, 0))])
    events(clicks, ("r119", 0, HOUR + 60 * 119), ("other", 0, HOUR + 5), mode="a")
    again = join(options(tmp_path, str(clicks), state=tmp_path / "state", window_s=1800, now_s=HOUR + 86401))
    assert (again["late_requests"], again["late_clicks"], again["unknown_clicks"], again["samples"]) == (2, 1, 1, 0)
    assert lines(tmp_path / "out") == found


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    write_requests(tmp_path / "log", [(HOUR, "a", candidates(1)), (HOUR, "b", candidates(1, 200))])
    (log,) = (tmp_path / "log").iterdir()
    whole = log.read_bytes()
    growing = tmp_path / "grow" / (log.name + ".open")
    growing.parent.mkdir()
    clicks = tmp_path / "clicks.jsonl"
    clicks.write_text('{"id": "a", "ti')
    growing.write_bytes(whole[:-20])
    more: dict[str, Any] = {"state": tmp_path / "state", "now_s": HOUR + 60}
    given = JoinOptions(requests=(str(growing.parent),), clicks=(str(clicks),), out=tmp_path / "out", **more)
    assert join(given)["requests"] == 1
    growing.unlink()
    (growing.parent / log.name).write_bytes(whole)
    clicks.write_text('{"id": "a", "time": ' + str(HOUR + 1) + "}\n")
    result = join(given)
    assert (result["requests"], result["clicks"], result["bad_events"]) == (1, 1, 0)
    clicks.write_text("")
    with pytest.raises(FailedPrecondition, match="shorter"):
        join(given)


class Killed(BaseException):
    pass


def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills a run after each call that changes the disk; the next run ends with the same samples."""
    requests = [(HOUR + 200 * i, f"r{i}", candidates(2, 10 * i)) for i in range(12)]
    clicks = events(tmp_path / "clicks.jsonl", *[(f"r{i}", i % 2, HOUR + 200 * i + 9) for i in range(0, 12, 2)])
    write_requests(tmp_path / "log", requests)
    wanted = [f"1 {int(i % 2 == 0 and k == 0)} {USER}:user {10 * i + k}:item" for i in range(12) for k in range(2)]
    left = itertools.count()
    limit = [10**9]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(left) >= limit[0]:
                raise Killed
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "fsync", counted(lambda fd: None))  # no machine fails here, only processes
    for place, name in ((os, "truncate"), (Path, "replace"), (Path, "unlink"), (Path, "touch")):
        monkeypatch.setattr(place, name, counted(getattr(place, name)))
    monkeypatch.setattr(state_module, "_BUFFER_BYTES", 500)
    monkeypatch.setattr(join_module, "PARTITIONS", 2)
    kills = 0
    for step in range(200):
        here = tmp_path / str(step)
        first = options(tmp_path, clicks, state=here / "state", window_s=60, delay_s=0)
        for now in (HOUR + 700, HOUR + 1300, HOUR + 9000):
            given = replace(first, out=here / "out", now_s=now)
            if now == HOUR + 1300:
                left, limit[0] = itertools.count(), step
            try:
                join(given)
                was_killed = False
            except Killed:
                was_killed = True
            limit[0] = 10**9
            if was_killed:
                kills += 1
        assert lines(here / "out") == sorted(wanted), step
        assert (here / "out/20261115/13/donefile").exists()
        assert not [path for path in (here / "out").rglob("*") if path.name.endswith(".writing")]
        if step > 0 and kills <= step:  # this run had fewer steps
            break
    assert kills > 10


def test_a_state_is_locked_and_keeps_its_options(tmp_path: Path) -> None:
    write_requests(tmp_path / "log", [(HOUR, "a", candidates(1))])
    clicks = events(tmp_path / "clicks.jsonl")
    join(options(tmp_path, clicks, state=tmp_path / "state", now_s=HOUR))
    with pytest.raises(FailedPrecondition, match="window_s 1800"):
        join(options(tmp_path, clicks, state=tmp_path / "state", window_s=60))
    stored = json.loads((tmp_path / "state/state.json").read_bytes())["options"]
    with JoinState(tmp_path / "state", tmp_path / "out", stored), pytest.raises(Unavailable, match="another join"):
        join(options(tmp_path, clicks, state=tmp_path / "state"))


def test_models_and_dense_slots(tmp_path: Path) -> None:
    from elasticctr import _native

    write_requests(tmp_path / "log", [(HOUR, "a", candidates(1))])
    log = _native.RequestLog(str(tmp_path / "log"))
    rows = [[], [(0, [7])]]
    dense, floats = [("x", 1), ("y", 2)], [[0.1, 1.0, -2.5]]
    log.add(HOUR, "d", "other", 1, "live", "json", b"{}", ["s"], dense, rows, floats, [[0.5]])
    log.stop()
    clicks = events(tmp_path / "clicks.jsonl", ("d", 0, HOUR))
    with pytest.raises(ConfigError, match="--model"):
        join(options(tmp_path, clicks))
    with pytest.raises(ConfigError, match="--format slot"):
        join(options(tmp_path, clicks, model="other", format="feasign"))
    result = join(options(tmp_path, clicks, model="other"))
    assert result["other_models"] == 1
    assert lines(tmp_path / "out") == ["click:1 x:0.1 y:1.0 y:-2.5 s:7"]
