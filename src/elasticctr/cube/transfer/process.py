"""A running transfer: one thread per model, one fleet, and the API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.routing import Route

from elasticctr.config.tls import wants_clients
from elasticctr.cube.transfer.app import make_transfer_app
from elasticctr.cube.transfer.builds import Builder, Builds
from elasticctr.cube.transfer.context import Context
from elasticctr.cube.transfer.fleet import AgentFleet
from elasticctr.cube.transfer.journal import StateDirectory
from elasticctr.cube.transfer.rollout import ModelRollout
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import ConfigError
from elasticctr.net.access import check_listener, load_tokens
from elasticctr.net.web import WebServer
from elasticctr.obs import console
from elasticctr.versions.feed import Feed

OpenFeed = Callable[[TransferSettings, int], tuple[Feed, Builder]]  # from settings and the number of shards


def open_repository(settings: TransferSettings, shards: int) -> tuple[Feed, Builder]:
    """The feed and builder of a repository. Raises ConfigError if the settings name another format."""
    if settings.format != "repository":
        raise ConfigError(f"format {settings.format!r}: only a repository is read here")
    from elasticctr.cube.transfer.builder import RepositoryBuilder
    from elasticctr.versions.feed import RepositoryFeed

    feed = RepositoryFeed(settings.repository)
    return feed, RepositoryBuilder(feed.repository, settings.build, shards)


@dataclass(frozen=True, slots=True)
class TransferOptions:
    settings: TransferSettings
    host: str = "127.0.0.1"
    port: int = 8099
    insecure: bool = False  # may be reachable from other machines without a token
    open_feed: OpenFeed = open_repository
    routes: Callable[[TransferProcess], Sequence[Route]] = lambda _: ()  # of further APIs


class TransferProcess:
    """Locks its state directory and binds its port when made; `run` works until stopped."""

    def __init__(self, options: TransferOptions) -> None:
        settings = options.settings
        self.settings = settings
        self.started_s = time.time()
        tokens = load_tokens(settings.token_file, settings.read_token_file)
        check_listener(
            "cube transfer",
            options.host,
            has_token=bool(tokens),
            has_client_ca=wants_clients(settings.tls),
            insecure=options.insecure,
        )
        self._state = StateDirectory(settings.state)
        self._stop = threading.Event()
        self._told: dict[str, str] = {}
        shards = len(settings.shards)
        feed, builder = options.open_feed(settings, shards)
        self.builds = Builds(self._state.builds, builder, shards)
        self.fleet = AgentFleet(settings, self._state.owner, tokens.admin, self._state.root)
        self.web = WebServer(
            make_transfer_app(self, tokens, options.routes(self)),
            options.host,
            options.port,
            tls=settings.tls,
        )
        self.address = settings.address or f"{self.web.scheme}://{_reachable(options.host)}:{self.web.port}"
        self.fleet.address = self.address
        root = f"{self.address}/v1/files" if settings.source == "http" else str(self._state.builds.resolve())
        self.models = {
            model: ModelRollout(
                Context(model, settings, feed, self.fleet, self.builds, root), self._state.journal(model)
            )
            for model in settings.models
        }

    def run(self) -> None:
        self.fleet.start()
        threads = [
            threading.Thread(target=self._work, args=(rollout,), name=f"rollout-{model}", daemon=True)
            for model, rollout in self.models.items()
        ]
        for thread in threads:
            thread.start()
        try:
            self.web.run()
        finally:
            self._stop.set()
            for rollout in self.models.values():
                rollout.stop()
            for thread in threads:
                thread.join(timeout=5.0)
            self.fleet.stop()
            self._state.close()

    def stop(self) -> None:
        self.web.stop()

    def _work(self, rollout: ModelRollout) -> None:
        # The first step needs to know who holds the agents' leases.
        self.fleet.refresh()
        while not self._stop.is_set():
            rollout.turn()
            self._tell(rollout)
            rollout.wait(self.settings.poll_s)

    def _tell(self, rollout: ModelRollout) -> None:
        """Prints changes to stderr: an outcome, or what is in the way."""
        history = rollout.journal.history
        line = f"{rollout.model}: version {rollout.journal.live or 'none'} is live"
        if history and history[-1]["outcome"] != "done":
            last = history[-1]
            line += f"; version {last['version']} {last['outcome']}: {last['message']}"
        elif rollout.trouble:
            line += f"; {rollout.trouble}"
        if self._told.get(rollout.model) != line:
            self._told[rollout.model] = line
            console.note(line)


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host
