"""The state of a served model: which version is live, which are ready, and what users decided about it.

Changed by the model's watcher and by users' commands (control.py), from several threads. `view` is a frozen value that
is replaced, so reading it needs no lock. `on_change` is called after each replacement; when it returns, the new view
answers requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from elasticctr.errors import ElasticCTRError, FailedPrecondition, NotFound
from elasticctr.obs import console
from elasticctr.serve.activation.loading import Ready
from elasticctr.serve.activation.refusals import Refusal, Refusals
from elasticctr.serve.activation.state import Decisions, ServedState, read_state, write_state
from elasticctr.serve.activation.version_cache import VersionCache
from elasticctr.serve.settings import ModelVariantSettings, ServedModelSettings
from elasticctr.versions.feed import Announcement

_HISTORY = 16


@dataclass(frozen=True, slots=True)
class ServedView:
    """What a model can answer from. `ready` holds the versions in memory, the least recently used first."""

    live: Ready | None = None
    ready: tuple[Ready, ...] = ()
    variants: tuple[ModelVariantSettings, ...] = ()
    sticky: str | None = None
    lost: tuple[Ready, ...] = ()  # of `ready`, those whose rows the Cube no longer has

    @property
    def can_answer(self) -> bool:
        return self.live is not None and self.live not in self.lost

    def find_usable(self, version: int, identity: str | None = None) -> Ready | None:
        """The version if it is ready and not lost."""
        ready = self.find(version, identity)
        return None if ready in self.lost else ready

    def find(self, version: int, identity: str | None = None) -> Ready | None:
        for one in self.ready:
            if one.version == version and identity in (None, one.identity):
                return one
        return None


@dataclass(frozen=True, slots=True)
class Goal:
    """A wanted version. `cause` is the event behind it: a refused version is tried again for another cause."""

    version: int
    identity: str | None
    cause: str


class ServedModel:
    def __init__(
        self,
        settings: ServedModelSettings,
        cache: VersionCache,
        on_change: Callable[[], None],
        wake: Callable[[], None],
        check: Callable[[Ready], None],
        look_up: Callable[[int], object],
    ) -> None:
        """`wake` is called when there is something to do; `check` raises if a ready version can no longer answer;
        `look_up` raises if a version was never published."""
        self.settings = settings
        self.announced: Announcement | None = None
        self.activations = 0
        self.activated: float | None = None
        self.refusals = Refusals()
        self.state = read_state(cache.root)
        decided = self.state.decisions
        if decided.variants is None:
            self.view = ServedView(variants=settings.variants, sticky=settings.sticky)
        else:
            self.view = ServedView(variants=decided.variants, sticky=decided.sticky)
        self.lock = threading.RLock()  # never held while something is loaded
        self._cache = cache
        self._on_change, self._wake, self._check, self._look_up = on_change, wake, check, look_up

    @property
    def target(self) -> Goal | None:
        """The version to be live; None if not decided."""
        decisions, live = self.state.decisions, self.view.live
        if decisions.held is not None:
            return Goal(decisions.held, None, "held")
        if live is not None and (decisions.is_paused or not self.settings.follow):
            return Goal(live.version, live.identity, "live")
        if self.announced is None:
            return None
        return Goal(self.announced.version, self.announced.identity, self.announced.key)

    @property
    def variant_goals(self) -> list[Goal]:
        return [Goal(one.version, None, "variant") for one in self.view.variants if one.version is not None]

    # Commands.

    def activate(self, version: int) -> None:
        """Serves `version` from now on and ignores later donefile lines, unless it is the version the donefile names
        now. A ready version is live at once; any other is made ready first."""
        self._vouch(version)
        with self.lock:
            ready = self.view.find(version)
            self.refusals.forgive(version)
            announced = self.announced
            self._decide(held=None if announced is not None and announced.version == version else version)
            if ready is not None:
                self.switch(ready)
        self._wake()

    def rollback(self) -> int:
        """Returns to the version served before this one, and returns its number."""
        with self.lock:
            if len(self.state.history) < 2:
                raise FailedPrecondition(f"{self.settings.name}: no version was served before this one")
            version = self.state.history[-2]
            self.activate(version)
            return version

    def pause(self) -> None:
        with self.lock:
            self._decide(is_paused=True)
        self._wake()

    def resume(self) -> None:
        """Follows the donefile again; switches at once if its version is ready."""
        with self.lock:
            self._decide(is_paused=False, held=None)
            target = self.target
            ready = None if target is None else self.view.find(target.version, target.identity)
            if ready is not None and ready is not self.view.live:
                self._check(ready)
                self.switch(ready)
        self._wake()

    def set_variants(self, variants: tuple[ModelVariantSettings, ...], sticky: str | None) -> None:
        versions = [variant.version for variant in variants if variant.version is not None]
        for version in versions:
            self._vouch(version)
        with self.lock:
            for version in versions:
                self.refusals.forgive(version)
            self._decide(variants=variants, sticky=sticky)
            self.view = replace(self.view, variants=variants, sticky=sticky)
        self._on_change()
        self._wake()

    def promote(self, name: str) -> int:
        """Makes a variant's version the live one and ends the experiment."""
        with self.lock:
            variant = next((one for one in self.view.variants if one.name == name), None)
            if variant is None:
                known = ", ".join(one.name for one in self.view.variants) or "none"
                raise NotFound(f"{self.settings.name}: no variant {name!r}; it has {known}")
            if variant.version is None:
                raise FailedPrecondition(
                    f"{self.settings.name}: variant {name!r} is not a version of this model; publish it as one"
                )
            if self.view.find(variant.version) is None:
                raise FailedPrecondition(f"{self.settings.name}: version {variant.version} is not ready yet")
            self._vouch(variant.version)
            self._decide(variants=(), sticky=None)
            self.view = replace(self.view, variants=(), sticky=None)
            self.activate(variant.version)
        return variant.version

    # Called by the watcher.

    def add(self, ready: Ready) -> None:
        """Adds a version that may answer from now on; replaces another one of its number."""
        with self.lock:
            self.refusals.forgive(ready.version)
            others = tuple(one for one in self.view.ready if one.version != ready.version)
            lost = tuple(one for one in self.view.lost if one.version != ready.version)
            self.view = replace(self.view, ready=(*others, ready), lost=lost)
        self._on_change()

    def switch(self, ready: Ready) -> None:
        """Makes a ready version live. When this returns, no request is routed to the old one."""
        with self.lock:
            # Written first: once a client has seen it answer, a restarted server must continue with it.
            history = self.state.history
            if ready.version in history:
                history = history[: history.index(ready.version) + 1]
            self.save(self.state.model_copy(update={"history": (*_without(history, ready), ready.version)[-_HISTORY:]}))
            old = self.view.live
            others = tuple(one for one in self.view.ready if one is not ready)
            self.view = replace(self.view, live=ready, ready=(*others, ready))
            self._on_change()
            if old is not ready:
                self.activations += 1
                self.activated = time.time()
                before = "" if old is None else f", after {old.version}"
                console.note(f"{self.settings.name}: version {ready.version} is live{before}")

    def lose(self, lost: tuple[Ready, ...]) -> None:
        """Notes that the Cube has retired these versions and no others. If the live one is among them, the most
        recently used version that the Cube still has replaces it."""
        with self.lock:
            if lost == self.view.lost:
                return
            self.view = replace(self.view, lost=lost)
            usable = [one for one in self.view.ready if one not in lost]
            if self.view.live in lost and usable:
                self.switch(usable[-1])
        self._on_change()

    def let_go(self) -> list[int]:
        """Releases versions that are not needed, least recently used first; `keep` of them stay. Returns those."""
        with self.lock:
            view, target = self.view, self.target
            needed = {goal.version for goal in self.variant_goals}
            needed |= set() if target is None else {target.version}
            needed |= set() if view.live is None else {view.live.version}
            # The version for a rollback is kept in preference to others used later.
            needed |= set(self.state.history[-2:-1]) if self.settings.keep > 1 else set()
            spare = [one for one in view.ready if one.version not in needed]
            room = max(0, self.settings.keep - (len(view.ready) - len(spare)))
            gone = spare[: max(0, len(spare) - room)]
            if gone:
                ready, lost = (tuple(one for one in of if one not in gone) for of in (view.ready, view.lost))
                self.view = replace(view, ready=ready, lost=lost)
            return [one.version for one in self.view.ready]

    def save(self, state: ServedState) -> None:
        with self.lock:
            changed, self.state = state != self.state, state
            if not changed:
                return
            try:
                write_state(self._cache.root, state)
            except ElasticCTRError as e:
                console.warn(f"{self.settings.name}: a restart will not resume the present version: {e}")

    def refuse(self, goal: Goal, error: ElasticCTRError) -> Refusal:
        """Refuses a version that cannot answer. If a user requested it, the live version is held instead."""
        with self.lock:
            refusal = self.refusals.add(goal.version, error, goal.cause)
            live, announced = self.view.live, self.announced
            if goal.cause == "held" and refusal.retry_at is None and live is not None:
                is_announced = announced is not None and announced.version == live.version
                self._decide(held=None if is_announced else live.version)
            return refusal

    def _vouch(self, version: int) -> None:
        """Raises if a version does not exist or cannot answer."""
        ready = self.view.find(version)
        if ready is None:
            self._look_up(version)
        else:
            self._check(ready)

    def _decide(self, **changes: object) -> None:
        decisions = Decisions.model_validate(self.state.decisions.model_copy(update=changes))
        self.save(self.state.model_copy(update={"decisions": decisions}))


def _without(history: tuple[int, ...], ready: Ready) -> tuple[int, ...]:
    return tuple(version for version in history if version != ready.version)
