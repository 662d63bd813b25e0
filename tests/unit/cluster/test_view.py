"""The table of roles and the printed lines of a distributed run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from elasticctr.cluster import view as views
from elasticctr.cluster.engine import RoleState
from elasticctr.cluster.feed import EventNews, EventTail
from elasticctr.cluster.view import COLUMNS, JobView, headline, make_rows

STATUS = {
    "phase": "training",
    "strategy": "async",
    "epoch": 1,
    "epochs": 3,
    "step": 1200,
    "samples": 614400,
    "samples_per_s": 52000.4,
    "loss": 0.4567,
    "auc": 0.7891,
    "chunks": {"total": 40, "done": 13, "leased": 2},
    "roles": [
        {
            "name": "trainer-10",
            "host": "a",
            "state": "training",
            "leases": [str((1 << 32) + 7), str((1 << 32) + 8)],
            "stats": {"samples_per_s": 26000, "lag": 2},
        },
        {
            "name": "pserver-0",
            "host": "b",
            "state": "ready",
            "stats": {"rows": 1000000, "memory_bytes": 3 << 30, "pulls_per_s": 99.5, "pushes_per_s": 98},
        },
    ],
}
STATES = [
    RoleState("coordinator-0", "running", host="h"),
    RoleState("pserver-0", "running", host="h", restarts=1),
    RoleState("trainer-2", "restarting", host="h", restarts=2, reason="was killed by SIGKILL"),
    RoleState("trainer-10", "running", host="h"),
]


def test_rows_join_what_coordinator_and_engine_know() -> None:
    rows = make_rows(STATUS, STATES)
    cells = {row[0]: dict(zip([column.removeprefix("#") for column in COLUMNS], row, strict=True)) for row in rows}
    assert list(cells) == ["coordinator-0", "pserver-0", "trainer-2", "trainer-10"]
    pserver, trainer = cells["pserver-0"], cells["trainer-10"]
    assert (pserver["rows"], pserver["memory"], pserver["pulls/s"]) == ("1,000,000", "3.00 GiB", "100")
    assert (pserver["state"], pserver["host"], pserver["restarts"]) == ("ready", "b", "1")
    assert (trainer["lease"], trainer["samples/s"], trainer["lag"]) == ("2:7, 2:8", "26,000", "2")
    assert (cells["trainer-2"]["state"], cells["trainer-2"]["rows"]) == ("restarting", "-")


@pytest.mark.parametrize("status", [{}, {"roles": None}, {"roles": [1, {}]}, {"roles": [{"name": "x", "stats": 3}]}])
def test_rows_of_odd_answers(status: dict[str, object]) -> None:
    assert len(make_rows(status, STATES[:1])) >= 1


def test_headline() -> None:
    assert headline({}) == "starting"
    assert headline(STATUS) == (
        "training (async)  epoch 2 of 3  chunks 13/40  step 1,200  614,400 samples  52,000/s  loss 0.4567  auc 0.7891"
    )


def test_plain_lines_elsewhere_than_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "LINE_EVERY_S", 0.0)
    out = io.StringIO()
    with JobView("run", console=Console(file=out)) as view:
        view.show(STATUS, STATES)
        view.show(STATUS, STATES)
        view.tell_event({"event": "eval", "split": "valid", "auc": 0.5, "logloss": None, "step": 10})
    lines = out.getvalue().splitlines()
    assert lines.count("trainer-2 was killed by SIGKILL; restarting it") == 1
    assert any("[1 coordinator, 1 pserver, 1 trainer, 3 restarts]" in line for line in lines)
    assert lines[-1] == "valid: auc 0.50000  logloss -  after step 10"


def test_a_terminal_gets_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with JobView("run", console=Console(file=out, force_terminal=True, width=160)) as view:
        view._drawn_s = 0.0
        view.show(STATUS, STATES)
    assert "pulls/s" in out.getvalue() and "trainer-10" in out.getvalue()


def test_without_a_coordinator_the_event_log_says_where_the_job_is(tmp_path: Path) -> None:
    news = EventNews(EventTail(tmp_path / "events.jsonl", skip=False))
    assert news.status == {}
    (tmp_path / "events.jsonl").write_text('{"event": "train", "step": 7, "samples": 70, "epoch": 0, "auc": null}\n')
    assert [event["step"] for event in news.read()] == [7]
    assert headline(news.status) == "training  epoch 1  step 7  70 samples"


def test_quiet_says_nothing() -> None:
    out = io.StringIO()
    with JobView("run", quiet=True, console=Console(file=out)) as view:
        view.show(STATUS, STATES)
        view.note("x")
    assert out.getvalue() == ""


def test_events_are_told_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "old"}\n')
    tail = EventTail(path, skip=True)
    assert tail.read() == []
    with path.open("a") as file:
        file.write(json.dumps({"event": "eval"}) + "\nnot json\n" + '{"event": "half')
    assert [event["event"] for event in tail.read()] == ["eval"]
    with path.open("a") as file:
        file.write('-done"}\n')
    assert [event["event"] for event in tail.read()] == ["half-done"]
    path.write_text("")
    assert tail.read() == []
    assert EventTail(tmp_path / "none", skip=False).read() == []
