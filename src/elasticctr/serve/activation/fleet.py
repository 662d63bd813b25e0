"""All models of a server. Switches requests to each model's ready versions in one step.

    fleet = ModelFleet(settings, set_models, set_ready)
    fleet.start()

Watchers make versions ready; `_apply` passes the whole set to the native server, which swaps it between two requests.
The HTTP API controls this class (control.py's FleetCommands).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from elasticctr.errors import NotFound, Unavailable
from elasticctr.serve.activation.loading import Ready
from elasticctr.serve.activation.served_model import ServedView
from elasticctr.serve.activation.variants import Share, parse_variants, route, sticky_seed
from elasticctr.serve.activation.version_cache import VersionCache
from elasticctr.serve.activation.watcher import Watcher
from elasticctr.serve.server import NativeModel
from elasticctr.serve.settings import ModelVariantSettings, ServedModelSettings, ServeSettings
from elasticctr.versions.serving_schema import ServingSchema


class ModelFleet:
    def __init__(
        self,
        settings: ServeSettings,
        set_models: Callable[[list[NativeModel]], None],
        set_ready: Callable[[bool, str], None],
    ) -> None:
        self._settings = settings
        self._set_models, self._set_ready = set_models, set_ready
        self._lock = threading.Lock()
        self._started_s = time.time()
        self._is_draining = False
        self._served: dict[str, int] = {}  # the live versions that answer requests
        self._watchers = {
            model.name: Watcher(model, _open_shelf(model, settings), self._apply, settings.tls)
            for model in settings.models
        }

    def start(self) -> None:
        self._apply()
        for watcher in self._watchers.values():
            watcher.start()

    def stop(self) -> None:
        """Stops the watchers. The served versions stay in service."""
        for watcher in self._watchers.values():
            watcher.stop()

    def look(self) -> None:
        """Makes every model check its repository now."""
        for watcher in self._watchers.values():
            watcher.look()

    def drain(self) -> None:
        """Reports not ready from now on, so that clients go elsewhere; requests are still answered."""
        with self._lock:
            self._is_draining = True
            self._set_ready(False, "shutting down")

    def readiness(self) -> tuple[bool, str]:
        if self._is_draining:
            return False, "shutting down"
        missing = [self._explain(watcher) for name, watcher in self._watchers.items() if name not in self._served]
        return not missing, "; ".join(missing)

    # What the API reads.

    def status(self) -> dict[str, Any]:
        ready, reason = self.readiness()
        return {
            "ready": ready,
            "reason": reason or None,
            "started": self._started_s,
            "models": [self.model_status(name) for name in self._watchers],
        }

    def model_status(self, model: str) -> dict[str, Any]:
        watcher = self._find(model)
        settings, view, decisions = watcher.settings, watcher.model.view, watcher.model.state.decisions
        history, announced, loading = watcher.model.state.history, watcher.model.announced, watcher.loading
        shares = {share.name: share for share in self._route(view)}
        live = self._served.get(model)
        return {
            "name": model,
            "repo": settings.repo,
            "published_as": settings.published,
            "cube": None if settings.cube is None else str(settings.cube),
            "live": live,
            "previous": _find_previous(history, live),
            "announced": None if announced is None else announced.version,
            "paused": decisions.is_paused or not settings.follow,
            "held": decisions.held,
            "loading": None if loading is None else asdict(loading),
            "ready": [_describe(one) for one in view.ready],
            "lost": [one.version for one in view.lost],
            "variants": [_describe_variant(one, shares) for one in view.variants],
            "sticky": view.sticky,
            "refused": watcher.model.refusals.status(),
            "activations": watcher.model.activations,
            "activated": watcher.model.activated,
            "repository_error": watcher.repository_error,
        }

    def serving_schema(self, model: str, version: int | None = None) -> tuple[int, ServingSchema]:
        """The schema and number of a version that can answer, by default the live one."""
        view = self._find(model).model.view
        ready = view.live if version is None else view.find(version)
        if ready is None and version is not None:
            raise NotFound(f"{model}: version {version} is not ready here")
        if ready is None:
            raise Unavailable(f"{model}: no version yet", 1.0)
        return ready.version, ready.schema

    def activate(self, model: str, version: int) -> dict[str, Any]:
        self._find(model).model.activate(version)
        return self.model_status(model)

    def rollback(self, model: str) -> dict[str, Any]:
        self._find(model).model.rollback()
        return self.model_status(model)

    def pause(self, model: str) -> dict[str, Any]:
        self._find(model).model.pause()
        return self.model_status(model)

    def resume(self, model: str) -> dict[str, Any]:
        self._find(model).model.resume()
        return self.model_status(model)

    def set_variants(self, model: str, variants: Sequence[Mapping[str, Any]], sticky: str | None) -> dict[str, Any]:
        watcher = self._find(model)
        others = [name for name in self._watchers if name != model]
        watcher.model.set_variants(parse_variants(variants, others), sticky)
        return self.model_status(model)

    def promote(self, model: str, variant: str) -> dict[str, Any]:
        self._find(model).model.promote(variant)
        return self.model_status(model)

    def metrics(self) -> str:
        """Prometheus text of the metrics that the native server does not have."""
        lines = []
        for name, kind, help_, value in _METRICS:
            lines += [f"# HELP serve_{name} {help_}", f"# TYPE serve_{name} {kind}"]
            lines += [
                f'serve_{name}{{model="{model}"}} {value(watcher):g}' for model, watcher in self._watchers.items()
            ]
        return "\n".join(lines) + "\n"

    # The only place that changes the native server.

    def _apply(self) -> None:
        with self._lock:
            models: list[NativeModel] = []
            served: dict[str, int] = {}
            for watcher in self._watchers.values():
                view, settings = watcher.model.view, watcher.settings
                routed = self._route(view)
                shares = [(one.name, one.weight, one.is_shadow, one.ready.native) for one in routed]
                if routed and view.can_answer:
                    served[settings.name] = routed[0].ready.version
                # Includes models without a version: they are not ready, which differs from unknown.
                seed = sticky_seed(settings.name, view.variants)
                models.append((settings.name, view.sticky or "", seed, settings.paddle_default, shares))
            self._set_models(models)
            self._served = served
            self._set_ready(*self.readiness())

    def _route(self, view: ServedView) -> list[Share]:
        def find(variant: ModelVariantSettings) -> Ready | None:
            if variant.version is not None:
                return view.find_usable(variant.version)
            other = self._watchers.get(variant.model or "")
            return other.model.view.live if other is not None and other.model.view.can_answer else None

        return route(view.live, view.variants, find)

    def _find(self, model: str) -> Watcher:
        watcher = self._watchers.get(model)
        if watcher is None:
            raise NotFound(f"no model {model!r}; this server has {', '.join(self._watchers)}")
        return watcher

    @staticmethod
    def _explain(watcher: Watcher) -> str:
        name, loading, view = watcher.settings.name, watcher.loading, watcher.model.view
        if view.live is not None and not view.can_answer:
            return f"{name}: version {view.live.version}: the Cube no longer has it"
        if loading is not None:
            return f"{name}: version {loading.version}: {loading.step}"
        refused = watcher.model.refusals.status()
        if refused:
            return f"{name}: version {refused[-1]['version']}: {refused[-1]['code']}: {refused[-1]['reason']}"
        return f"{name}: {watcher.repository_error or 'no version yet'}"


def _open_shelf(model: ServedModelSettings, settings: ServeSettings) -> VersionCache:
    if model.index_dir is not None:
        return VersionCache(model.index_dir, model.published)
    return VersionCache.open_default(model.repo, model.published, f"{model.name}-{settings.port}")


def _find_previous(history: tuple[int, ...], live: int | None) -> int | None:
    """The version served before `live`. The history is written just after a switch, so it may lack the live one."""
    before = history[: history.index(live)] if live in history else history[:-1] if live is None else history
    return before[-1] if before else None


def _describe(ready: Ready) -> dict[str, Any]:
    return {
        "version": ready.version,
        "network": ready.schema.network,
        "labels": list(ready.schema.labels),
        "samples": ready.checked.samples,
        "worst": ready.checked.worst,
        "split": not ready.native.why_whole,
        "why_whole": ready.native.why_whole or None,
        "loaded": ready.loaded,
        "took_s": ready.took_s,
    }


def _describe_variant(variant: ModelVariantSettings, shares: Mapping[str, Share]) -> dict[str, Any]:
    share = shares.get(variant.name)
    served = {"version": None, "serving": False} if share is None else {"version": share.ready.version, "serving": True}
    return {**variant.model_dump(), **{k: v for k, v in served.items() if k == "serving" or v is not None}}


_METRICS: tuple[tuple[str, str, str, Callable[[Watcher], float]], ...] = (
    (
        "live_version",
        "gauge",
        "Version that answers; 0: none.",
        lambda w: w.model.view.live.version if w.model.view.live else 0,
    ),
    ("activations_total", "counter", "Versions made live.", lambda w: w.model.activations),
    ("versions_refused_total", "counter", "Times a version was refused.", lambda w: w.model.refusals.total),
    ("loading", "gauge", "1 while a version is being made ready.", lambda w: float(w.loading is not None)),
    ("ready_versions", "gauge", "Versions in memory.", lambda w: len(w.model.view.ready)),
    (
        "repository_unreachable",
        "gauge",
        "1 while the repository cannot be read.",
        lambda w: float(w.repository_error is not None),
    ),
)
