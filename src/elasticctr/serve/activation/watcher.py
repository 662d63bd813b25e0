"""A model's thread: watches its repository, makes versions ready beside the live one, then makes them live.

    watcher = Watcher(settings, cache, on_change)
    watcher.start()
    watcher.model.rollback()

A bad version is refused with a reason, and the live one stays; it also stays while the repository or the Cube is
unreachable.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import ElasticCTRError, InternalError
from elasticctr.obs import console
from elasticctr.obs.watch import Watch
from elasticctr.serve.activation.loading import Loader
from elasticctr.serve.activation.pinning import Pin
from elasticctr.serve.activation.reload_stamp import ReloadStamp
from elasticctr.serve.activation.served_model import Goal, ServedModel
from elasticctr.serve.activation.version_cache import VersionCache
from elasticctr.serve.settings import ServedModelSettings
from elasticctr.versions.donefile import last_in_effect

_LOAD_S = 24 * 3600.0
_CUBE_LOOK_S = 0.5
_NICENESS = 10  # loading gives way to answering


@dataclass(frozen=True, slots=True)
class Loading:
    version: int
    step: str
    since: float


class _LoadWatch(Watch):
    """Ends a load that is no longer wanted: users or the donefile may choose another version meanwhile."""

    def __init__(self, is_wanted: Callable[[], bool], every_s: float) -> None:
        super().__init__(_LOAD_S)
        self._is_wanted, self._every_s = is_wanted, every_s
        self._asked_s = time.monotonic()

    def check(self) -> None:
        super().check()
        if time.monotonic() - self._asked_s >= self._every_s:
            self._asked_s = time.monotonic()
            if not self._is_wanted():
                self.cancel()
                super().check()


class Watcher:
    def __init__(
        self,
        settings: ServedModelSettings,
        cache: VersionCache,
        on_change: Callable[[], None],
        tls: TlsSettings | None = None,
    ) -> None:
        self.settings = settings
        self.loading: Loading | None = None
        self.repository_error: str | None = None
        self._loader = Loader(settings, cache, tls)
        loader = self._loader
        self.model = ServedModel(settings, cache, on_change, self._interrupt, loader.check_again, loader.look_up)
        self._reload = None
        if settings.reload_meta is not None:
            last = self.model.state.reload_stamp
            self._reload = ReloadStamp(settings.reload_meta, settings.reload_type, last)
        self._pin = Pin(self._loader.feed.repository, settings, str(cache.root))
        self._wake, self._stop = threading.Event(), threading.Event()
        self._watch: _LoadWatch | None = None
        self._told = ""
        self._kept: list[int] = []
        self._cube_look_s = 0.0  # when to check the Cube next
        self._cube_version: int | None = None  # what it answered from when this server could not
        self._thread = threading.Thread(target=self._run, name=f"watch-{settings.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        self._interrupt()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        _give_way()
        self._restore()
        while not self._stop.is_set():
            try:
                self._turn()
            except ElasticCTRError as e:
                self._tell(f"{e.code}: {e}")
            except Exception as e:
                # The thread survives any error, and the live version stays.
                self._tell(f"InternalError: {type(e).__name__}: {e}")
            pause_s = min([self.settings.poll_s, *self.model.refusals.waits_s()])
            self._wake.wait(max(0.01, pause_s))
            self._wake.clear()

    def _turn(self) -> None:
        self._observe()
        self._look_at_cube()
        for goal in self._goals():
            if self._stop.is_set():
                return
            if self.model.view.find(goal.version, goal.identity) is None and not self._is_refused(goal):
                self._load(goal)
            if goal.cause != "variant":
                self._settle()
        kept = self.model.let_go()
        if kept != self._kept:
            self._loader.forget(kept)
            self._kept = kept
        self._pin.renew(kept)

    def _restore(self) -> None:
        """Restores the version served before a restart; this needs no repository."""
        history = self.model.state.history
        if not history:
            return
        self._watch = _LoadWatch(lambda: self._may_come_back(history[-1]), self.settings.poll_s)
        try:
            ready = self._loader.load_kept(history[-1], self._watch, lambda step: self._note(history[-1], step))
        except ElasticCTRError as e:
            self._tell(f"version {history[-1]}, served before the restart, cannot be restored: {e}")
        except Exception as e:
            self._tell(f"version {history[-1]}, served before the restart, cannot be restored: {type(e).__name__}: {e}")
        else:
            self.model.add(ready)
            self.model.switch(ready)
        finally:
            self.loading = None

    def _may_come_back(self, version: int) -> bool:
        """Whether to wait: local files are ready soon, but a Cube may have moved on to the donefile's version."""
        if self.settings.cube is None:
            return True
        self._observe()
        target = self.model.target
        return target is None or target.version == version

    def _observe(self) -> None:
        """Reads the donefile. An unreachable repository changes nothing."""
        place = f"{self.settings.repo}/{self.settings.published}"
        try:
            found = self._loader.feed.wanted(self.settings.published)
        except (ElasticCTRError, OSError) as e:
            self.repository_error = f"{place}: cannot be read: {e}"
            self._tell(self.repository_error)
            return
        if found is None:
            self.repository_error = f"{place}: nothing was published here, or the donefile is gone"
            self._tell(self.repository_error)
            return
        self.repository_error = None
        model = self.model
        if self._reload is not None:
            if not self._reload.changed() and (model.announced is not None or model.view.live is not None):
                return
            model.save(model.state.model_copy(update={"reload_stamp": self._reload.last}))
        model.announced = found

    def _goals(self) -> list[Goal]:
        """Wanted versions, the one to be live first. Without any version to answer from, the Cube's active version
        comes before one still on its way there."""
        target, active = self.model.target, self._cube_version
        goals = [] if target is None else [target]
        if not self.model.view.can_answer and active is not None and (target is None or target.version != active):
            decided = Goal(active, None, "cube")
            goals = goals if self._is_refused(decided) else [decided]
        elif target is not None and self.model.view.live is None and self._is_refused(target):
            goals += self._fallback()
        return goals + self.model.variant_goals

    def _look_at_cube(self) -> None:
        """Checks now and then which versions the Cube still has, without waiting for one that does not answer."""
        now_s = time.monotonic()
        if self.settings.cube is None or now_s < self._cube_look_s:
            return
        view = self.model.view
        answers = [(one, self._loader.is_lost(one)) for one in view.ready]
        self.model.lose(tuple(one for one, lost in answers if (one in view.lost if lost is None else lost)))
        for one in self.model.view.lost:
            self._tell(f"the Cube no longer has version {one.version}")
        if not self.model.view.can_answer:
            self._cube_version = self._loader.find_cube_version()
        self._cube_look_s = time.monotonic() + _CUBE_LOOK_S

    def _fallback(self) -> list[Goal]:
        """If there is nothing to serve: the version that is in effect if refused ones are ignored."""
        events = self._loader.feed.repository.events(self.settings.published)
        events = [event for event in events if event.version not in self.model.refusals.versions()]
        return [Goal(last_in_effect(events).version, None, "fallback")] if events else []

    def _is_refused(self, goal: Goal) -> bool:
        with self.model.lock:
            return self.model.refusals.stands(goal.version, goal.cause)

    def _load(self, goal: Goal) -> None:
        self._watch = _LoadWatch(lambda: self._is_wanted(goal), self.settings.poll_s)
        try:
            self._note(goal.version, "reading")
            identity = goal.identity or self._loader.feed.chain(self.settings.published, goal.version)[-1].identity
            self._pin.renew([*(one.version for one in self.model.view.ready), goal.version])
            # A user's request does not wait for the Cube's decision.
            decided = goal.cause not in ("held", "live", "variant")
            ready = self._loader.load(
                goal.version, identity, self._watch, lambda step: self._note(goal.version, step), decided=decided
            )
        except ElasticCTRError as e:
            if not self._stop.is_set() and self._is_wanted(goal):
                self._refuse(goal, e)
        except Exception as e:
            self._refuse(goal, InternalError(f"{type(e).__name__}: {e}"))
        else:
            why_whole = ready.native.why_whole
            console.note(
                f"{self.settings.name}: version {ready.version} is ready after {ready.took_s:.2f} s: "
                f"{ready.checked.samples} samples within {ready.checked.worst:.1g}; shared values are computed "
                + (f"for each of them: {why_whole}" if why_whole else "once per request")
            )
            self.model.add(ready)
        finally:
            self.loading = None

    def _refuse(self, goal: Goal, error: ElasticCTRError) -> None:
        refusal = self.model.refuse(goal, error)
        live = self.model.view.live
        if live is None:
            self._wake.set()  # another version may work
        goes_on = "nothing is served" if live is None else f"version {live.version} stays live"
        again = "" if refusal.retry_at is None else "; it will be retried"
        self._tell(f"version {goal.version} is refused, {goes_on}: {error.code}: {error}{again}")

    def _is_wanted(self, goal: Goal) -> bool:
        """Checked now and then while a version is loaded."""
        self._observe()
        self._look_at_cube()
        if goal.cause == "fallback":
            return self.model.view.live is None
        return any((goal.version, goal.identity) == (one.version, one.identity) for one in self._goals())

    def _settle(self) -> None:
        """Makes the wanted version live once it is ready."""
        with self.model.lock:
            view = self.model.view
            for goal in self._goals():
                ready = view.find_usable(goal.version, goal.identity)
                if ready is not None and goal.cause != "variant":
                    if ready is not view.live:
                        self.model.switch(ready)
                    return

    def _interrupt(self) -> None:
        """Wakes the thread, and stops it from loading what is no longer wanted."""
        watch, loading, target = self._watch, self.loading, self.model.target
        if watch is not None:
            wanted = {goal.version for goal in self.model.variant_goals}
            wanted |= set() if target is None else {target.version}
            is_useless = loading is not None and self.model.view.live is not None and loading.version not in wanted
            if self._stop.is_set() or is_useless:
                watch.cancel()
        self._wake.set()

    def _note(self, version: int, step: str) -> None:
        loading = self.loading
        since = loading.since if loading is not None and loading.version == version else time.time()
        self.loading = Loading(version, step, since)

    def _tell(self, line: str) -> None:
        """Prints a message, but not the same one twice in a row."""
        if line != self._told:
            self._told = line
            console.warn(f"{self.settings.name}: {line}")


def _give_way() -> None:
    """Lowers the priority of this thread and those it starts below answering, even if the server runs in real time."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
