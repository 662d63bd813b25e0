"""A coordinator from start to end: the claim, the journal, the web server, the director. No torch in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticctr.config.tls import wants_clients
from elasticctr.errors import AlreadyExists, ConfigError
from elasticctr.net.access import Tokens, check_listener
from elasticctr.net.web import WebServer
from elasticctr.ps.addresses import advertised_host, write_coordinator
from elasticctr.ps.coordinator.app import make_coordinator_app
from elasticctr.ps.coordinator.claim import Claim
from elasticctr.ps.coordinator.coordinator import Coordinator
from elasticctr.ps.coordinator.director import Director
from elasticctr.ps.coordinator.fleet import PServerFleet
from elasticctr.ps.coordinator.job_record import LEDGER_DIRECTORY
from elasticctr.ps.coordinator.journal import NAME, LedgerJournal, read_journal
from elasticctr.ps.coordinator.pserver_client import ControlClient
from elasticctr.ps.coordinator.replay import is_finished, is_under_way, replay
from elasticctr.ps.identity import build, job_identity
from elasticctr.ps.shape import shape_of
from elasticctr.train.chunk_plan import Plan
from elasticctr.train.interrupt import Interrupt
from elasticctr.train.job import Job
from elasticctr.train.run_directory import RunDirectory


def run_coordinator(
    job: Job,
    *,
    host: str,
    port: int,
    tokens: Tokens,
    insecure: bool = False,
    resume: bool = False,
    is_restarted: bool = False,
    on_listening: Callable[[str], None] = lambda url: None,
) -> bool:
    """Runs a job's coordinator to the job's end. Returns whether the job is finished; False: stopped, to be resumed.

    After a coordinator of the run died, this one continues its work, with `resume` or without. `is_restarted`: this
    process replaces one that died; if that one had just finished the run, nothing is left to do.
    """
    cluster = job.cluster
    if cluster is None or cluster.strategy == "collective":
        raise ConfigError("this job has no use for a coordinator: give it a cluster section with pservers")
    has_client_ca = cluster is not None and wants_clients(cluster.tls)
    check_listener("coordinator", host, has_token=bool(tokens), has_client_ca=has_client_ca, insecure=insecure)
    run = RunDirectory(Path(job.run_dir).absolute())
    directory = run.path / LEDGER_DIRECTORY
    lines, _ = read_journal(directory / NAME)
    if is_restarted and is_finished(lines):
        return True
    if lines and not is_under_way(lines) and not resume:
        raise AlreadyExists(f"{run.path}: holds a run already; continue it with --resume, or name another directory")
    run.begin(job, resume=resume or is_under_way(lines))
    claim = Claim(directory)
    try:
        journal, lines = LedgerJournal.take_over(directory / NAME)
        coordinator = Coordinator(job, cluster, journal, claim.incarnation)
        plan = Plan(directory, job)
        replay(coordinator, lines, run, plan)
        identity = job_identity(job)
        journal.append("begin", {"incarnation": claim.incarnation, "identity": identity.digest, "build": build()})
        about = {"role": "coordinator", "build": build(), "identity": identity.text, "strategy": cluster.strategy}
        fleet = PServerFleet(
            ControlClient(identity.number, claim.incarnation, json.dumps(about), tokens.admin, cluster.tls)
        )
        server = WebServer(make_coordinator_app(coordinator, tokens), host, port, tls=cluster.tls)
        url = f"{server.scheme}://{advertised_host(host)}:{server.port}"
        thread = threading.Thread(target=server.run, name="elasticctr-web", daemon=True)
        thread.start()
        try:
            write_coordinator(run.path, url, claim.incarnation)
            on_listening(url)
            plan.prepare()
            learned = _learner_identity(job)
            director = Director(coordinator, fleet, plan, run, claim, learned, is_resumed=resume or bool(lines))
            with Interrupt(coordinator.wants_stop.set):
                return director.run()
        finally:
            coordinator.is_over = True
            server.stop()
            thread.join(5)
            fleet.close()
            journal.close()
    finally:
        claim.release()


def _learner_identity(job: Job) -> dict[str, Any]:
    """The identity of the model for trainer.json, as a learner in one process writes it."""
    return shape_of(job).identity
