"""What GET /v1/status shows of a run: where it is, its figures, and every role (docs/formats/coordinator-api.md).

Only reads the coordinator, under its lock; decides nothing, and knows nothing of HTTP.
"""

from __future__ import annotations

import time
from typing import Any

from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.membership import Member


def describe_status(at: Coordinator) -> dict[str, Any]:
    with at.lock:
        ledger = at.course.ledger if at.evaluating is None else at.evaluating.ledger
        totals = ledger.totals() if ledger is not None else None
        chunks = {} if totals is None else {"total": totals.chunks, "done": totals.done, "leased": totals.leased}
        return {
            "phase": at.phase,
            "strategy": at.cluster.strategy,
            "epoch": at.course.epoch,
            "epochs": at.job.train.epochs,
            "chunks": chunks,
            "step": at.course.step,
            "samples": at.course.samples,
            "bad_lines": totals.bad if totals is not None and at.evaluating is None else 0,
            "samples_per_s": at.window.rate,
            "loss": at.window.last_loss,
            "auc": at.course.metrics.auc(),
            "rate_scale": at.course.rate_scale,
            "rollbacks": at.rollbacks,
            "era": at.era,
            "checkpoint": at.checkpoint,
            "reports": at.reports,
            "run_dir": str(at.job.run_dir),
            "uptime_s": round(time.monotonic() - at.began_s, 1),
            "roles": [_describe_member(at, member) for member in at.members.everyone()],
        }


def _describe_member(at: Coordinator, member: Member) -> dict[str, Any]:
    leases = [str(chunk) for ledger in at.ledgers() for chunk in ledger.held_by(member.id)]
    state: str = member.phase
    if member.role == "trainer" and member.is_alive:
        state = "working" if leases else "waiting"
    return {
        **member.as_dict(),
        "state": state,
        "is_alive": member.is_alive,
        "silent_s": round(time.monotonic() - member.seen_s, 1),
        "leases": leases,
        "stats": member.stats,
    }
