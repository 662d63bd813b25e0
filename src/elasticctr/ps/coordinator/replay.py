"""A coordinator's state from the journal its predecessor left: the run continues as if it had paused."""

from __future__ import annotations

import time
from collections.abc import Sequence

from elasticctr.errors import Corruption, DataError, FailedPrecondition, NotFound
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.job_record import restore_metrics, restore_state
from elasticctr.ps.coordinator.journal import Line
from elasticctr.ps.coordinator.ledger import Ledger, Report
from elasticctr.ps.coordinator.membership import Member
from elasticctr.ps.identity import job_identity
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.run_directory import RunDirectory


def replay(coordinator: Coordinator, lines: Sequence[Line], run: RunDirectory, plan: Plan) -> None:
    """Raises FailedPrecondition if the journal is of another job, Corruption if it makes no sense."""
    digest = job_identity(coordinator.job).digest
    for line in lines:
        if line["event"] == "begin" and line.get("identity") != digest:
            raise FailedPrecondition(
                f"{run.path}: was begun with another job (schema, model, tables, optimizer, strategy, seed or batch "
                "size differ); continue with that job, or name another run directory"
            )
    # Before the newest state that was kept whole only members matter.
    kept = max((i for i, line in enumerate(lines) if line.get("state")), default=-1)
    try:
        for number, line in enumerate(lines):
            _apply_member(coordinator, line)
            if number == kept:
                restore_state(coordinator, run, plan, str(line["state"]))
            elif number > kept:
                _apply_work(coordinator, line, plan)
    except (KeyError, TypeError, ValueError, AssertionError, DataError, NotFound) as e:
        raise Corruption(
            f"{run.path}/ledger: the journal contradicts itself ({type(e).__name__}: {e}); "
            "remove the ledger directory to resume from the newest checkpoint"
        ) from None
    restore_metrics(coordinator, run)
    for member in coordinator.members.everyone():
        member.seen_s = time.monotonic()
        # Trainers at work still are; pservers get the group again, with the new incarnation.
        member.is_asking = member.role == "trainer" and member.is_alive


def is_under_way(lines: Sequence[Line]) -> bool:
    """Whether the journal is of a run that has begun and not ended."""
    return next((line["event"] for line in reversed(lines) if line["event"] in ("begin", "end")), "end") == "begin"


def is_finished(lines: Sequence[Line]) -> bool:
    """Whether the journal is of a run that was trained to its end."""
    last = next((line for line in reversed(lines) if line["event"] in ("begin", "end")), None)
    return last is not None and last["event"] == "end" and last["reason"] != "interrupted"


def _apply_member(at: Coordinator, line: Line) -> None:
    event, members = line["event"], at.members
    if event == "join":
        member = Member.from_dict(line["member"])
        member.era = at.era if member.role == "trainer" else -1
        members.add(member)
        at.generation += 1
    elif event in ("gone", "back"):
        if members.has(line["id"]):  # else it had left when the journal was shortened; it joins again if it is alive
            members.get(line["id"]).phase = line["phase"]
        at.generation += 1
    elif event == "loaded":
        for member_id in line["ids"]:
            member = members.get(member_id)
            member.era, member.phase = line["era"], "ready"
    elif event == "promote":
        member = members.get(line["id"])
        member.role, member.phase, member.era = "pserver", "ready", at.era
        at.generation += 1
    elif event == "appoint":
        member = members.get(line["id"])
        member.role, member.phase, member.era = "pserver", "joined", -1
        at.generation += 1
    elif event in ("start", "rollback", "best"):
        at.era = line["era"]
        at.generation += 1
    elif event == "checkpoint":
        at.checkpoint = {"step": line["step"], "path": line["path"], "at": line["at"]}
    elif event == "end":
        for member in members.everyone():
            member.phase = "left"


def _apply_work(at: Coordinator, line: Line, plan: Plan) -> None:
    event, ledger = line["event"], at.course.ledger
    if event == "epoch":
        at.course.epoch = line["epoch"]
        at.course.open_ledger(Ledger(plan.epoch(line["epoch"])))
    elif event == "gone" and ledger is not None:
        ledger.lose(line["id"])
    elif event in ("lease", "done", "lost") and ledger is not None:
        chunk_id = int(line["chunk"])
        entry = ledger.find(chunk_id)
        if entry is None:  # of an evaluation, which starts over
            return
        if event == "lease":
            ledger.take(chunk_id, line["id"], line["lease"])
        elif event == "lost":
            ledger.lose(line["id"], chunk_id)
        else:
            ledger.finish(chunk_id, Report(line["batches"], line["samples"], line["lines"], line["bad"]))
