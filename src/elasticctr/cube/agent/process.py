"""A running agent: its work, its API and the monitoring of its server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import Route

from elasticctr.config.tls import TlsSettings, wants_clients
from elasticctr.cube.agent.agent import Agent
from elasticctr.cube.agent.app import make_agent_app
from elasticctr.cube.agent.data_directory import DataDirectory
from elasticctr.cube.agent.fetch import Fetcher, RateLimit
from elasticctr.cube.agent.lease import AgentLease
from elasticctr.cube.agent.server import CubeServerApi
from elasticctr.cube.agent.sources import AllowedSources
from elasticctr.errors import ElasticCTRError
from elasticctr.net.access import NO_TOKENS, Tokens, check_listener
from elasticctr.net.client import Peer, make_client
from elasticctr.net.web import WebServer
from elasticctr.obs import console

_SILENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class AgentOptions:
    server: str
    data: Path
    host: str = "127.0.0.1"
    port: int = 8001
    tokens: Tokens = NO_TOKENS
    insecure: bool = False  # may be reachable from other machines without a token
    shard: tuple[int, int] | None = None
    allow_sources: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    rate_limit_bytes_s: float | None = None
    job_timeout_s: float = 3600.0
    watch_s: float = 1.0
    tls: TlsSettings | None = None
    routes: Callable[[Agent], Sequence[Route]] = lambda _: ()  # of further APIs


class AgentProcess:
    """Binds its port when made; `run` serves until stopped."""

    def __init__(self, options: AgentOptions) -> None:
        check_listener(
            "cube agent",
            options.host,
            has_token=bool(options.tokens),
            has_client_ca=wants_clients(options.tls),
            insecure=options.insecure,
        )
        self._options = options
        directory = DataDirectory(options.data)
        lease = AgentLease(directory.notes / "lease.json")
        # The secret is sent only to those who share it: the transfer in charge and those named here.
        sources = AllowedSources(
            (*options.allow_sources, *options.peers),
            make_client(None, timeout_s=_SILENCE_S, tls=options.tls),
            make_client(options.tokens.admin, timeout_s=_SILENCE_S, tls=options.tls),
            lambda: (lease.address, *options.peers),
        )
        self.agent = Agent(
            directory,
            CubeServerApi(Peer(options.server, options.tokens.admin, tls=options.tls)),
            sources,
            Fetcher(RateLimit(options.rate_limit_bytes_s)),
            job_timeout_s=options.job_timeout_s,
            shard=options.shard,
            lease=lease,
        )
        app = make_agent_app(self.agent, options.tokens, options.routes(self.agent))
        self.web = WebServer(app, options.host, options.port, tls=options.tls)
        self._stop = threading.Event()

    def run(self) -> None:
        watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        watcher.start()
        try:
            self.web.run()
        finally:
            self._stop.set()
            self.agent.jobs.cancel()
            watcher.join(timeout=5.0)

    def stop(self) -> None:
        self.web.stop()

    def _watch(self) -> None:
        """Reloads versions that the server has lost. Reports a failure once, until it changes."""
        told = ""
        while not self._stop.wait(self._options.watch_s):
            try:
                for job in self.agent.restore():
                    console.note(f"the server has lost version {job.version} of {job.model}; loading it again")
                told = ""
            except ElasticCTRError as e:
                if told != str(e):
                    told = str(e)
                    console.warn(f"{e.code}: {e}")
