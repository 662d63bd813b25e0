"""The agent's work: prepare a version beside the live one, activate it, retire it, restore a restarted server.

Every request may be repeated at any time with the same effect; a killed agent resumes from the state of its files.
"""

from __future__ import annotations

import shutil
import threading
from typing import Any

from elasticctr.cube.agent.data_directory import DataDirectory, StoredVersion
from elasticctr.cube.agent.fetch import Fetcher
from elasticctr.cube.agent.jobs import AgentJob, AgentJobs
from elasticctr.cube.agent.lease import AgentLease
from elasticctr.cube.agent.request import Prepare, Step
from elasticctr.cube.agent.server import NOTHING, CubeServerApi, ModelStatus
from elasticctr.cube.agent.sources import AllowedSources
from elasticctr.cube.shared.listing import ShardListing, parse_shard
from elasticctr.cube.shared.names import check_model, may_be_same
from elasticctr.errors import (
    AlreadyExists,
    Corruption,
    ElasticCTRError,
    FailedPrecondition,
    InternalError,
    NotFound,
    Unavailable,
)
from elasticctr.obs.watch import Watch
from elasticctr.versions.manifest import check_version


class Agent:
    """Threads: any; the work on one model is done by one job at a time."""

    def __init__(
        self,
        directory: DataDirectory,
        server: CubeServerApi,
        sources: AllowedSources,
        fetcher: Fetcher,
        *,
        job_timeout_s: float = 3600.0,
        shard: tuple[int, int] | None = None,
        lease: AgentLease | None = None,
    ) -> None:
        self.directory = directory
        self.server = server
        self.fetcher = fetcher
        self.lease = lease or AgentLease(directory.notes / "lease.json")
        self.jobs = AgentJobs(job_timeout_s)
        self.activations = 0
        self.restores = 0
        self._sources = sources
        self._shard = shard
        self._retiring = threading.Lock()

    def prepare(self, wanted: Prepare) -> AgentJob:
        """Fetches and loads a version in the background. Repeating the request joins the job or finds it done."""
        for step in wanted.steps:
            self._sources.open(step.source)
        if self._shard is not None and wanted.shards is not None and (wanted.shard, wanted.shards) != self._shard:
            raise FailedPrecondition(
                f"this agent has shard {self._shard[0]} of {self._shard[1]}, not {wanted.shard} of {wanted.shards}: "
                "the order of the shards is wrong"
            )
        return self.jobs.start(wanted.model, wanted.version, wanted.key, lambda job: self._prepare(wanted, job))

    def activate(self, model: str, version: int, identity: str | None = None) -> dict[str, Any]:
        """Switches the server. Raises NotFound if the version is not resident there with these contents."""
        status = self.server.model(check_model(model))
        if not status.is_ready(check_version(version), identity):
            raise NotFound(f"version {version} of {model} is not resident on {self.server.url}; prepare it first")
        answer = self.server.activate(model, version)
        self.activations += 1
        return answer

    def retire(self, model: str, version: int) -> dict[str, Any]:
        """Drops a version from the server, and its files once no kept version depends on them."""
        status = self.server.model(check_model(model))
        if version == status.active:
            raise FailedPrecondition(f"version {version} of {model} is active; activate another one first")
        job = self.jobs.latest(model)
        if job is not None and job.is_running:
            raise Unavailable(f"version {job.version} of {model} is being prepared; retire it afterwards", 1.0)
        self.server.retire(model, check_version(version))
        with self._retiring:
            self.directory.mark_retired(model, version)
            # A starting server loads the version in LIVE, so it stays even if another is active by now.
            in_use = {status.active, status.previous, *self.directory.live(model)} - {version}
            return {"removed": self.directory.sweep(model, in_use)}

    def restore(self) -> list[AgentJob]:
        """Makes a server that has lost its versions serve again the version in LIVE. Returns the jobs this took."""
        status = self.server.status()
        jobs = []
        for model in self.directory.models():
            live, _ = self.directory.live(model)
            job = self.jobs.latest(model)
            if not live or status.get(model, NOTHING).active or (job is not None and job.is_running):
                continue
            if self.directory.find(model, live) is not None:
                jobs.append(self.jobs.start(model, live, "restore", lambda job: self._restore(job)))
        return jobs

    def status(self) -> dict[str, Any]:
        try:
            resident, error = self.server.status(timeout_s=1.5), None
        except ElasticCTRError as e:
            resident, error = {}, {"code": e.code, "message": str(e)}
        usage = shutil.disk_usage(self.directory.data)
        names = sorted({*self.directory.models(), *resident})
        return {
            "server": {"url": self.server.url, "reachable": error is None, "error": error},
            "models": [self._describe_model(name, resident.get(name, NOTHING)) for name in names],
            "jobs": [job.describe() for job in self.jobs.all()],
            "lease": self.lease.describe(),
            "disk": {"free_bytes": usage.free, "total_bytes": usage.total},
        }

    def _describe_model(self, model: str, status: ModelStatus) -> dict[str, Any]:
        versions = []
        for version in sorted({*self.directory.versions(model), *status.versions}):
            held, resident = self.directory.find(model, version), status.versions.get(version)
            identity = None if held is None else held.identity
            if resident is not None and resident.identity:
                # The version that answers counts, whatever is on the disk.
                identity = resident.identity
            stored = held is not None and may_be_same(held.identity, identity) and self.directory.is_whole(model, held)
            versions.append(
                {
                    "version": version,
                    "state": "stored" if resident is None else resident.state,
                    "error": "" if resident is None else resident.error,
                    "stored": stored,
                    "retired": held is not None and held.is_retired,
                    "identity": identity,
                    "parent": held.listing.parent if held is not None else resident.parent if resident else 0,
                }
            )
        return {"name": model, "active": status.active, "previous": status.previous, "versions": versions}

    def _prepare(self, wanted: Prepare, job: AgentJob) -> None:
        model = wanted.model
        status = self.server.model(model)
        to_load: list[tuple[int, str]] = []
        version = wanted.version
        while True:
            held = self._obtain(wanted, version, status, job)
            if status.is_ready(version, held.identity):
                break
            to_load.append((version, held.identity))
            if held.listing.parent == 0:
                break
            version = held.listing.parent
            if status.is_ready(version, held.parent_identity) and wanted.step(version) is None:
                break
        self.directory.mark_retired(model, wanted.version, retired=False)
        job.state = "loading"
        for version, identity in reversed(to_load):
            self._load(wanted, version, identity, job)

    def _obtain(self, wanted: Prepare, version: int, status: ModelStatus, job: AgentJob) -> StoredVersion:
        """The version's files on disk, fetched if needed."""
        step, held = wanted.step(version), self.directory.find(wanted.model, version)
        if held is not None and (step is None or (_is_same(held, step) and self._stands(wanted, held))):
            self._check_shard(wanted, held.listing)
            return held
        if step is None:
            raise NotFound(
                f"version {wanted.version} of {wanted.model} depends on version {version}, which this replica lacks: "
                "send it too, in chain, or send a base"
            )
        if step.sha256 is None and step.identity is not None:
            # The request gives no digest: its sender believed the version is here.
            raise NotFound(
                f"version {version} of {wanted.model} is not on this replica: send the digest of its files, or a base"
            )
        if held is not None and not _is_same(held, step) and status.is_ready(version):
            self._check_replacing(wanted, step, held, status)
        return self._fetch(wanted, step, job)

    def _stands(self, wanted: Prepare, held: StoredVersion) -> bool:
        """Whether a held version's chain is here or in the request. If not, the version is fetched too."""
        return wanted.step(held.listing.parent) is not None or self.directory.is_whole(wanted.model, held)

    def _check_replacing(self, wanted: Prepare, step: Step, held: StoredVersion, status: ModelStatus) -> None:
        """Contents of the same number are replaced only by a request that names an identity."""
        what = f"version {step.version} of {wanted.model} is here with other contents (identity {held.identity[:12]}…)"
        if step.identity is None:
            raise AlreadyExists(
                f"{what}; a version never changes: publish under a new number, or retire this one first"
            )
        if step.version == status.active and step.version != wanted.version:
            raise NotFound(f"{what} and is active: send version {wanted.version} as a base")

    def _fetch(self, wanted: Prepare, step: Step, job: AgentJob) -> StoredVersion:
        job.state = "fetching"
        source = self._sources.open(step.source)
        data = self.fetcher.fetch_listing(source, "shard.json", step.sha256, job.watch)
        listing = parse_shard(data, f"{step.source}/shard.json")
        if (listing.model, listing.version) != (wanted.model, step.version):
            raise Corruption(
                f"{step.source}: holds version {listing.version} of {listing.model}, "
                f"not {step.version} of {wanted.model}"
            )
        self._check_shard(wanted, listing)
        folder = self.directory.begin(listing)
        job.watch.bytes_total += listing.total_bytes
        try:
            self.directory.keep_only(folder, listing)
            for file in listing.files:
                self.fetcher.fetch_file(source, file, folder, job.watch)
        except (InternalError, Corruption):
            # Free the space on a full disk, and never resume a damaged download.
            self.directory.abandon(wanted.model, step.version)
            raise
        below = step.parent_identity if listing.parent else None
        self.directory.finish(folder, listing, data, step.identity or step.sha256 or "", below)
        held = self.directory.find(wanted.model, step.version)
        if held is None:
            raise InternalError(f"version {step.version} of {wanted.model} was fetched but is missing on the disk")
        return held

    def _load(self, wanted: Prepare, version: int, identity: str, job: AgentJob) -> None:
        try:
            self.server.load(wanted.model, version, identity, job.watch)
        except Corruption as e:
            # The disk may have damaged a good download: fetch once more; a second failure is the source's fault.
            step = wanted.step(version)
            if version != self.server.model(wanted.model).active:
                self.server.retire(wanted.model, version)
            self.directory.discard(wanted.model, version)
            if step is None:
                raise NotFound(f"{e}; the damaged files were removed: send it again in chain, or a base") from None
            self._fetch(wanted, step, job)
            job.state = "loading"
            self.server.load(wanted.model, version, identity, job.watch)

    def _restore(self, job: AgentJob) -> None:
        live, previous = self.directory.live(job.model)
        job.state = "loading"
        self._load_from_disk(job.model, live, job.watch)
        self.server.activate(job.model, live)
        self.restores += 1
        if previous and self.directory.find(job.model, previous) is not None:
            self._load_from_disk(job.model, previous, job.watch)

    def _load_from_disk(self, model: str, version: int, watch: Watch) -> None:
        status, chain = self.server.model(model), []
        while version and not status.is_ready(version):
            held = self.directory.find(model, version)
            if held is None:
                raise FailedPrecondition(
                    f"version {version} of {model} is needed but not on the disk; prepare it again"
                )
            chain.append((version, held.identity))
            version = held.listing.parent
        for version, identity in reversed(chain):
            self.server.load(model, version, identity, watch)

    def _check_shard(self, wanted: Prepare, listing: ShardListing) -> None:
        expected = (wanted.shard, wanted.shards) if wanted.shards is not None else self._shard
        if expected is not None and (listing.shard, listing.shards) != expected:
            raise Corruption(
                f"version {listing.version} of {listing.model}: received shard {listing.shard} of {listing.shards} "
                f"instead of {expected[0]} of {expected[1]}"
            )


def _is_same(held: StoredVersion, step: Step) -> bool:
    """Compares identities if there is one; files without an identity are compared by digest."""
    if step.identity is not None and held.identity != held.sha256:
        return step.identity == held.identity
    return step.sha256 is None or step.sha256 == held.sha256
