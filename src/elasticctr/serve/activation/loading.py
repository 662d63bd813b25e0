"""Turns a version of a repository into one that can answer: fetches, indexes and checks it. A bad one is refused here.

    loader = Loader(settings, cache)
    ready = loader.load(version, identity, watch)

Called by the thread that follows a model; no request waits for it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from elasticctr import _native
from elasticctr.config.tls import TlsSettings, called
from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.builds import build_version
from elasticctr.cube.directory import read_version
from elasticctr.errors import Corruption, ElasticCTRError, NotFound
from elasticctr.obs.watch import Watch
from elasticctr.serve.activation.remote_rows import RemoteRows
from elasticctr.serve.activation.served_version import LocalRows, Rows, make_served_version
from elasticctr.serve.activation.verification import Checked, check_scores, check_shared, check_tables
from elasticctr.serve.activation.version_cache import VersionCache, VersionFiles
from elasticctr.serve.settings import ServedModelSettings
from elasticctr.versions.feed import RepositoryFeed
from elasticctr.versions.manifest import check_version
from elasticctr.versions.serving_schema import SCHEMA, ServingSchema, parse_serving_schema
from elasticctr.versions.verification import GRAPH

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """A version that passed all checks and may answer."""

    version: int
    identity: str
    native: _native.ServedVersion
    checked: Checked
    schema: ServingSchema
    loaded: float  # unix seconds
    took_s: float


class _Damaged(Exception):
    """Index files built here have changed since."""


class Loader:
    def __init__(self, settings: ServedModelSettings, cache: VersionCache, tls: TlsSettings | None = None) -> None:
        self.settings = settings
        self.cache = cache
        self.feed = RepositoryFeed(settings.repo)
        self._store: _native.CubeStore | None = None
        self._indexed: dict[int, str] = {}  # versions in the store → their identity
        self._remote: RemoteRows | None = None
        if settings.cube is not None:
            self._remote = RemoteRows(settings.cube, settings.published, called(tls))

    def load(
        self,
        version: int,
        identity: str,
        watch: Watch,
        step: Step = lambda what: None,
        *,
        decided: bool = False,
    ) -> Ready:
        """Raises what is wrong with the version; NotFound or Unavailable if that may pass. With `decided`, a Cube must
        already answer from it."""
        started = time.monotonic()
        model, repository = self.settings.published, self.feed.repository
        step("reading")
        links = self.feed.chain(model, version)
        if links[-1].identity != identity:
            raise Corruption(f"{repository.url}/{model}: version {version} was published again meanwhile; try again")
        files = self.cache.fetch(repository, repository.manifest(model, version), identity)
        chain = [(link.version, link.identity) for link in links]
        try:
            self._build(chain, watch, step)
            return self._finish(files, chain, watch, step, started, decided)
        except _Damaged:
            # These were this machine's files, not the publisher's; they have been removed.
            self._build(chain, watch, step)
            return self._finish(files, chain, watch, step, started, decided)

    def load_kept(self, version: int, watch: Watch, step: Step = lambda what: None) -> Ready:
        """Loads a version from this machine's files alone. NotFound if any is missing."""
        started = time.monotonic()
        files = self.cache.read(version)
        chain = (
            []
            if files is None
            else [(number, self.cache.indexed(number)) for number in (*files.manifest.chain, version)]
        )
        whole = [(number, identity) for number, identity in chain if identity is not None]
        if files is None or (self._remote is None and len(whole) < len(chain)):
            raise NotFound(f"{self.cache.root}: version {version} is not complete here")
        try:
            return self._finish(files, whole, watch, step, started)
        except _Damaged as e:
            raise NotFound(f"{self.cache.root}: version {version} is damaged: {e}") from None

    def forget(self, keep: Collection[int]) -> None:
        """Frees the rows of all versions except those in `keep`, and removes their files. A version that still answers
        keeps its rows until it is released."""
        for version in [version for version in self._indexed if version not in keep]:
            self._drop(version)
        self.cache.prune(keep)

    def look_up(self, version: int) -> None:
        """Raises NotFound if a version was never published or is gone."""
        self.feed.repository.manifest(self.settings.published, check_version(version))

    def check_again(self, ready: Ready) -> None:
        """Raises if a version kept for rollback can no longer answer: a Cube may have retired it."""
        if self._remote is not None:
            self._remote.check_has(ready.version, ready.identity, tuple(ready.checked.tables))

    def is_lost(self, ready: Ready) -> bool | None:
        """Whether the Cube has retired a version; None if unknown."""
        if self._remote is None:
            return False
        has = self._remote.has(ready.version, ready.identity, tuple(ready.checked.tables))
        return None if has is None else not has

    def find_cube_version(self) -> int | None:
        """The version the Cube answers from; None if there is none or it is unknown."""
        try:
            return None if self._remote is None else self._remote.find_active()
        except ElasticCTRError:
            return None

    def _build(self, chain: list[tuple[int, str]], watch: Watch, step: Step) -> None:
        """Builds index files of those versions of a chain that have none here, each with its own rows only."""
        options = BuildOptions(threads=self.settings.build_threads)
        for version, identity in () if self._remote is not None else chain:
            watch.check()
            if self.cache.indexed(version) == identity:
                continue
            step(f"indexing {version}")
            self.cache.begin_index(version, identity)
            build_version(
                self.feed.repository,
                self.settings.published,
                version,
                self.cache.out,
                options,
                advance=lambda _: watch.check(),
            )

    def _finish(
        self,
        files: VersionFiles,
        chain: list[tuple[int, str]],
        watch: Watch,
        step: Step,
        started: float,
        decided: bool = False,
    ) -> Ready:
        version = files.manifest.version
        where = f"{self.settings.repo}/{self.settings.published}/{version}"
        schema = parse_serving_schema(files.schema, f"{where}/{SCHEMA}")
        check_tables(schema, files.manifest, where)
        rows: Rows = self._open_index(chain, step) if self._remote is None else self._remote.rows
        if self._remote is not None:
            step("waiting for Cube")
            tables, longest_s = tuple(schema.tables), self.settings.cube_wait_s
            self._remote.wait_for(version, files.identity, tables, longest_s, watch, decided=decided)
        watch.check()
        step("checking")

        def make(whole_because: str = "") -> _native.ServedVersion:
            return make_served_version(
                self.settings.published,
                version,
                schema,
                files.graph,
                rows,
                self.settings.policy,
                f"{where}/{GRAPH}",
                self.settings.paddle_feeds,
                whole_because,
            )

        native = make()
        checked = check_scores(native, schema, files.samples, self.settings.verify, where)
        if why := check_shared(native, schema, files.samples, self.settings.verify, where):
            native = make(whole_because=why)
        took_s = time.monotonic() - started
        return Ready(version, files.identity, native, checked, schema, time.time(), took_s)

    def _open_index(self, chain: list[tuple[int, str]], step: Step) -> LocalRows:
        step("loading")
        if self._store is None:
            self._store = _native.CubeStore.make(self.settings.residence, True)
        for version, identity in chain:
            if self._indexed.get(version, identity) != identity:
                self._drop(version)
        # The newest version there is in memory with its chain.
        there = max((place for place, (version, _) in enumerate(chain) if version in self._indexed), default=-1)
        for version, identity in chain[there + 1 :]:
            try:
                built = read_version(self.cache.root / str(version))
                self._store.load(built.model, built.version, built.parent, built.files(0), 0, 1)
            except (Corruption, NotFound) as e:
                self.cache.remove_index(version)
                raise _Damaged(str(e)) from None
            self._indexed[version] = identity
        return LocalRows([self._store], self.settings.published)

    def _drop(self, version: int) -> None:
        self._indexed.pop(version, None)
        if self._store is not None:
            with contextlib.suppress(ElasticCTRError):
                self._store.retire(self.settings.published, version)
