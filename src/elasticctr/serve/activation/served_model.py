"""One model as it is served now: which version is live, which are ready, and what people decided about it.

Changed by the model's watcher and by people's commands (control.py), from several threads. `view` is a frozen value
that is replaced, so that nobody waits to read it; `on_change` is called after each replacement, and when it returns
requests are answered by the new view.
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
    """What a model can answer from. `ready` are the versions in memory, the one used longest ago first."""

    live: Ready | None = None
    ready: tuple[Ready, ...] = ()
    variants: tuple[ModelVariantSettings, ...] = ()
    sticky: str | None = None
    lost: tuple[Ready, ...] = ()  # of `ready`, those whose rows the Cube does not have any more

    @property
    def can_answer(self) -> bool:
        return self.live is not None and self.live not in self.lost

    def find_usable(self, version: int, identity: str | None = None) -> Ready | None:
        """One that is ready and not lost."""
        ready = self.find(version, identity)
        return None if ready in self.lost else ready

    def find(self, version: int, identity: str | None = None) -> Ready | None:
        for one in self.ready:
            if one.version == version and identity in (None, one.identity):
                return one
        return None


@dataclass(frozen=True, slots=True)
class Goal:
    """A version somebody wants. `cause` is what made them: a refused one is tried again for another cause."""

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
        """`wake` is called when there is something to do; `check` raises if a ready version cannot answer any more;
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
        """The version to be live; None: nobody has said."""
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
        """Serves `version` from now on, whatever the donefile says next, unless it is what the donefile says now. One
        that is ready is switched to at once; another one is made ready first."""
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
        """Back to the version served before this one; its number."""
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
        """Follows the donefile again, at once to a version that is ready."""
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
        """A variant's version becomes the live one, and the experiment ends."""
        with self.lock:
            variant = next((one for one in self.view.variants if one.name == name), None)
            if variant is None:
                known = ", ".join(one.name for one in self.view.variants) or "none"
                raise NotFound(f"{self.settings.name}: no variant {name!r}; there is {known}")
            if variant.version is None:
                raise FailedPrecondition(
                    f"{self.settings.name}: variant {name!r} is no version of this model; publish it as one"
                )
            if self.view.find(variant.version) is None:
                raise FailedPrecondition(f"{self.settings.name}: version {variant.version} is not ready yet")
            self._vouch(variant.version)
            self._decide(variants=(), sticky=None)
            self.view = replace(self.view, variants=(), sticky=None)
            self.activate(variant.version)
        return variant.version

    # What the watcher does.

    def add(self, ready: Ready) -> None:
        """A version that may answer from now on, in place of another one of its number."""
        with self.lock:
            self.refusals.forgive(ready.version)
            others = tuple(one for one in self.view.ready if one.version != ready.version)
            lost = tuple(one for one in self.view.lost if one.version != ready.version)
            self.view = replace(self.view, ready=(*others, ready), lost=lost)
        self._on_change()

    def switch(self, ready: Ready) -> None:
        """Makes a ready version the live one: when this returns, no request is routed to the old one."""
        with self.lock:
            # Noted first: once somebody has seen it answer, a server started again goes on with it.
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
        """The Cube has let go of the rows of these, and of no others. Should the live one be among them, the version
        used last that it still has answers in its place."""
        with self.lock:
            if lost == self.view.lost:
                return
            self.view = replace(self.view, lost=lost)
            usable = [one for one in self.view.ready if one not in lost]
            if self.view.live in lost and usable:
                self.switch(usable[-1])
        self._on_change()

    def let_go(self) -> list[int]:
        """Drops versions nobody needs: `keep` of them stay, the least recently used go first. Those that stay."""
        with self.lock:
            view, target = self.view, self.target
            needed = {goal.version for goal in self.variant_goals}
            needed |= set() if target is None else {target.version}
            needed |= set() if view.live is None else {view.live.version}
            # The one to go back to is kept before others that were used later.
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
                console.warn(f"{self.settings.name}: what is served now will not survive a restart: {e}")

    def refuse(self, goal: Goal, error: ElasticCTRError) -> Refusal:
        """A version that cannot answer. What people asked for in vain is not waited for: the live one is held on to."""
        with self.lock:
            refusal = self.refusals.add(goal.version, error, goal.cause)
            live, announced = self.view.live, self.announced
            if goal.cause == "held" and refusal.retry_at is None and live is not None:
                is_announced = announced is not None and announced.version == live.version
                self._decide(held=None if is_announced else live.version)
            return refusal

    def _vouch(self, version: int) -> None:
        """Raises if a version cannot answer, or is not one."""
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
