"""The rollouts of one model, one at a time: the state machine of journal.py, driven by `turn`.

Prepare everywhere → enough ready → the decision is written → activate everywhere → verify.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from elasticctr.cube.transfer.context import Context
from elasticctr.cube.transfer.instance import Instance
from elasticctr.cube.transfer.journal import JournalFile, Outcome, Reason, Rollout, TransferJournal
from elasticctr.cube.transfer.mending import Mending
from elasticctr.cube.transfer.preparation import Preparation
from elasticctr.errors import (
    AlreadyExists,
    ConfigError,
    Corruption,
    DataError,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unavailable,
)
from elasticctr.obs.watch import Watch

# Errors that would recur at the next attempt: the version is at fault.
_LASTING = (AlreadyExists, Corruption, DataError, ConfigError)
# After this long without progress a rollout gives way to a newer version.
_GIVE_WAY_S = 10.0


class ModelRollout:
    """Threads: `turn` from one; everything else from any."""

    def __init__(self, context: Context, file: JournalFile) -> None:
        self.model = context.model
        self.journal: TransferJournal = file.load(context.model)
        self.trouble = ""  # what is in the way now, for people
        self._context = context
        self._file = file
        self._mending = Mending(context)
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._watch: Watch | None = None
        self._gives_way = False
        self._takeovers = 0

    def turn(self) -> None:
        """Does as many steps as possible now. Errors of the tree end in the history, or as `trouble`."""
        try:
            if not self._context.fleet.is_leading:
                self.trouble = f"standing by: {self._context.fleet.holder or 'taking the lease'}"
                return
            self._context.term.epoch = self._context.fleet.epoch
            if self._takeovers != self._context.fleet.takeovers:
                self._adopt()
            if self.journal.state == "idle":
                self._begin()
            if self.journal.state == "building":
                self._before_decision(self._build, self._context.settings.build.timeout_s)
            if self.journal.state == "preparing":
                self._before_decision(self._prepare, self._context.settings.patience.prepare_s)
            if self.journal.state == "activating":
                self._activate()
            if self.journal.state == "idle" and self.journal.live:
                self._mending.run(self.journal)
        except Exception as e:
            # A bug in one step must not end the thread that does everything else.
            self.trouble = f"{type(e).__name__}: {e}"

    def wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def ask(self, version: int, reason: Reason) -> dict[str, Any]:
        """Requests a version, whatever was published so far. A rollout not yet decided gives way."""
        identity = self._context.feed.chain(self.model, version)[-1].identity
        request = {"version": version, "identity": identity, "reason": reason, "not_before": 0.0}
        with self._lock:
            self._change(lambda journal: setattr(journal, "request", request))
            self._give_way()
        self._woken.set()
        return {"model": self.model, "version": version, "reason": reason}

    def pause(self, paused: bool) -> dict[str, Any]:
        """While paused, published versions are not started; running rollouts finish, and requests are carried out."""
        self._change(lambda journal: setattr(journal, "paused", paused))
        self._woken.set()
        return {"model": self.model, "paused": paused}

    def stop(self) -> None:
        """Ends waiting. A running rollout continues when a transfer runs again."""
        with self._lock:
            if self._watch is not None:
                self._watch.cancel()
        self._woken.set()

    def _change(self, change: Callable[[TransferJournal], None]) -> None:
        """Makes a transition. It is on disk before anything depends on it; if that fails, nothing has changed."""
        with self._lock:
            changed = copy.deepcopy(self.journal)
            change(changed)
            self._file.save(changed)
            self.journal = changed

    def _adopt(self) -> None:
        """Takes the live version from the servers, not this journal: another transfer was in charge meanwhile."""
        fleet = self._context.fleet
        takeovers = fleet.takeovers
        fleet.refresh()
        holdings = [self._context.holding(instance) for instance in fleet.usable()]
        if not holdings:
            raise Unavailable("no agent answers, so the live version is unknown; check the agents")
        found = Counter((one.active, one.versions[one.active].identity or "") for one in holdings if one.active)

        def adopt(journal: TransferJournal) -> None:
            if journal.rollout is not None:
                journal.finish("superseded", "another transfer was in charge meanwhile")
            if found:
                (active, identity), _ = found.most_common(1)[0]
                journal.previous = journal.previous if active == journal.live else journal.live
                journal.live, journal.live_identity = active, identity
            journal.handled = ""

        self._change(adopt)
        self._takeovers = takeovers

    def _begin(self) -> None:
        journal, wanted = self.journal, self._context.feed.wanted(self.model)
        request = journal.request
        if request is not None and request["not_before"] <= time.time():
            key = journal.handled if wanted is None else wanted.key
            self._start(request["version"], request["identity"], request["reason"], key, asked=True)
            return
        if journal.paused:
            self.trouble = "paused"
            return
        if wanted is None or wanted.key == journal.handled:
            self.trouble = "" if wanted is not None else "nothing published yet"
            return
        if (wanted.version, wanted.identity) == (journal.live, journal.live_identity):
            self._change(lambda j: setattr(j, "handled", wanted.key))
            return
        last = journal.history[-1] if journal.history else {}
        if last.get("announcement") == wanted.key and journal.retry_at > time.time():
            self.trouble = f"version {wanted.version} will be retried soon: {last['message']}"
            return
        self._start(wanted.version, wanted.identity, "rollback" if wanted.is_rollback else "publish", wanted.key)

    def _start(self, version: int, identity: str, reason: Reason, announcement: str, asked: bool = False) -> None:
        def start(journal: TransferJournal) -> None:
            last = journal.history[-1] if journal.history else {}
            if (last.get("outcome"), last.get("announcement")) != ("postponed", announcement):
                journal.retries = 0
            journal.rollout = Rollout(journal.next_id, version, identity, reason, announcement, asked, time.time())
            journal.next_id += 1
            journal.request = None
            journal.state = "building"

        self._change(start)

    def _before_decision(self, work: Callable[[Rollout, Watch], None], timeout_s: float) -> None:
        """Any error here ends the rollout, and no server has changed."""
        rollout = _current(self.journal)
        with self._lock:
            self._watch, self._gives_way = Watch(timeout_s), False
        try:
            work(rollout, self._watch)
        except Exception as raised:
            e = raised if isinstance(raised, ElasticCTRError) else InternalError(f"{type(raised).__name__}: {raised}")
            if self._gives_way:
                self._cancel_jobs()
                self._abandon("superseded", e)
            elif not self._context.is_in_charge:
                raise
            elif isinstance(e, _LASTING) or self.journal.retries >= self._context.settings.patience.retries:
                self._abandon("failed", e)
            else:
                self._abandon("postponed", e)
        finally:
            with self._lock:
                self._watch = None

    def _cancel_jobs(self) -> None:
        """Cancels jobs that are no longer wanted: an agent does one job at a time, and the next must not wait."""
        fleet = self._context.fleet
        order = {"model": self.model, "lease": self._context.lease}
        fleet.each(fleet.usable(), lambda instance: instance.post("/v1/cancel", order))

    def _abandon(self, outcome: Outcome, error: ElasticCTRError) -> None:
        patience = self._context.settings.patience

        def abandon(journal: TransferJournal) -> None:
            rollout = _current(journal)
            if outcome == "postponed":
                pause_s = min(patience.first_pause_s * 2.0 ** min(journal.retries, 60), patience.longest_pause_s)
                journal.retries += 1
                journal.retry_at = time.time() + pause_s
                if rollout.asked and journal.request is None:
                    # Otherwise the request would be lost.
                    again = {"version": rollout.version, "identity": rollout.identity, "reason": rollout.reason}
                    journal.request = {**again, "not_before": journal.retry_at}
            elif outcome == "failed":
                journal.handled = rollout.announcement
                journal.retries = 0
            journal.finish(outcome, f"{error.code}: {error}")

        self._change(abandon)
        self.trouble = f"version {self.journal.history[-1]['version']} {outcome}: {error}"

    def _build(self, rollout: Rollout, watch: Watch) -> None:
        context = self._context
        context.fleet.refresh()
        links = context.links(rollout.version, rollout.identity)
        self._mending.pin(self.journal, rollout.version)
        steps = context.steps(links, context.fleet.usable(), watch)
        watch.check()

        def built(journal: TransferJournal) -> None:
            _current(journal).steps = steps
            journal.state = "preparing"

        self._change(built)

    def _prepare(self, rollout: Rollout, watch: Watch) -> None:
        context = self._context

        def request(instance: Instance, needs_base: bool) -> dict[str, Any]:
            held = context.holding(instance).has_whole(rollout.version, rollout.identity)
            if needs_base or (rollout.steps[-1]["kind"] == "held" and not held):
                links = context.links(rollout.version, rollout.identity)
                return context.request(context.base(links, watch), instance)
            return context.request(rollout.steps, instance)

        preparation = Preparation(context.fleet, request, context.settings.require, context.settings.patience, watch)
        stop = threading.Event()
        threading.Thread(target=self._look_for_newer, args=(rollout, stop), daemon=True).start()
        try:
            ready = preparation.run()
        finally:
            stop.set()
        for instance in context.fleet.instances:
            if instance.name in preparation.refused:
                instance.trouble[self.model] = str(preparation.refused[instance.name])
        with self._lock:
            if self._gives_way:
                raise Unavailable("another version was requested")

            def decide(journal: TransferJournal) -> None:
                current = _current(journal)
                current.decided, current.ready = time.time(), ready
                journal.state = "activating"

            self._change(decide)

    def _look_for_newer(self, rollout: Rollout, stop: threading.Event) -> None:
        """A rollout without progress must not hold up a newer version, and none may hold up a rollback."""
        while not stop.wait(max(self._context.settings.poll_s, 0.2)):
            if not self._context.is_in_charge:
                # Agents refuse this transfer's orders now; the next turn begins by asking them.
                with self._lock:
                    if self._watch is not None:
                        self._watch.cancel()
                return
            try:
                newer = self._context.feed.wanted(self.model)
            except ElasticCTRError:
                continue
            if newer is None or newer.key in (rollout.announcement, self.journal.handled):
                continue
            if newer.is_rollback or time.time() - rollout.started > _GIVE_WAY_S:
                self._give_way()
                return

    def _give_way(self) -> None:
        with self._lock:
            if self._watch is not None and self.journal.state in ("building", "preparing"):
                self._gives_way = True
                self._watch.cancel()

    def _activate(self) -> None:
        """Phase two: switches every replica that has the version; one that does not answer follows later."""
        context, rollout = self._context, _current(self.journal)
        deadline_s = time.monotonic() + context.settings.patience.activate_s
        order = context.order(rollout.version, rollout.identity)
        waiting, pause_s = set(rollout.ready), 0.05
        while waiting and context.is_in_charge:
            targets = [one for one in context.fleet.instances if one.name in waiting]
            answers = context.fleet.each(targets, lambda one: one.post("/v1/activate", order))
            # NotFound: its server restarted and lost the version; it is repaired after the rollout.
            waiting -= {
                name for name, a in answers.items() if not isinstance(a, ElasticCTRError) or isinstance(a, NotFound)
            }
            if not waiting or time.monotonic() > deadline_s:
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)
        if not context.is_in_charge:
            raise FailedPrecondition(f"standing by: {context.fleet.holder}")
        self._verify(rollout)

    def _verify(self, rollout: Rollout) -> None:
        context = self._context
        context.fleet.refresh()
        behind = [
            one.name
            for one in context.fleet.instances
            if not context.is_current(one, rollout.version, rollout.identity)
        ]

        def finish(journal: TransferJournal) -> None:
            if journal.live != rollout.version:
                journal.previous = journal.live
            journal.live, journal.live_identity = rollout.version, rollout.identity
            journal.handled = rollout.announcement
            journal.retries = 0
            journal.finish("done", f"behind: {', '.join(behind)}" if behind else "")

        self._change(finish)
        self.trouble = ""
        self._mending.forget_attempts()
        self._mending.prune(self.journal)
        self._mending.pin(self.journal)


def _current(journal: TransferJournal) -> Rollout:
    assert journal.rollout is not None
    return journal.rollout
