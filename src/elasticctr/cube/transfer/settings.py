"""transfer.yaml: the repository to watch, the servers to supply, and deadlines."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from elasticctr.config import Settings
from elasticctr.config.tls import TlsSettings
from elasticctr.cube.shared.names import check_model
from elasticctr.errors import ElasticCTRError
from elasticctr.net.client import check_url


class InstanceSettings(Settings):
    """One replica of one shard: a cube server and the agent beside it."""

    agent: str = Field(description="address of the agent, such as http://10.0.0.5:8001")
    server: str = Field(
        "", description="address of its server, shown to people and in /instance/status; the agent knows its own"
    )

    @field_validator("agent", "server")
    @classmethod
    def _check(cls, url: str) -> str:
        try:
            return check_url(url) if url else ""
        except ElasticCTRError as e:
            raise ValueError(str(e)) from None


class RequireSettings(Settings):
    """How many replicas must have a version before it is activated. The others follow as soon as they can."""

    policy: Literal["each-shard", "all"] = Field(
        "each-shard", description="each-shard: min_replicas of every shard; all: every replica of every shard"
    )
    min_replicas: int = Field(1, ge=1, le=64, description="replicas of each shard that must be ready, for each-shard")
    straggler_s: float = Field(
        5.0,
        ge=0,
        description="how long to wait for the other replicas once enough are ready, before activating without them",
    )


class BuildSettings(Settings):
    """How index files are built."""

    sharding: Literal["buckets", "modulo"] = Field(
        "buckets", description="how feasigns are spread over shards; modulo: as clients of Paddle's Cube expect"
    )
    in_process_rows: int = Field(
        2_000_000, ge=0, description="versions of up to this many rows are built without starting a process"
    )
    max_chain: int = Field(16, ge=1, le=900, description="deltas on a base before transfer merges them into a new base")
    timeout_s: float = Field(3600.0, gt=0, description="longest time one build may take")
    keep: int = Field(3, ge=1, le=1000, description="newest builds kept on disk, in addition to those in use")


class PatienceSettings(Settings):
    """Deadlines and retries."""

    prepare_s: float = Field(600.0, gt=0, description="longest time to get a version ready on all replicas")
    activate_s: float = Field(
        10.0, gt=0, description="longest time to retry a replica that does not answer an activation"
    )
    call_s: float = Field(3.0, gt=0, le=60, description="longest time an agent may take to answer one request")
    check_s: float = Field(1.0, gt=0, le=60, description="time between two checks of an agent")
    first_pause_s: float = Field(0.5, gt=0, description="pause before the first retry; doubles")
    longest_pause_s: float = Field(60.0, gt=0, description="longest pause between two retries")
    retries: int = Field(
        20, ge=0, le=10_000, description="further attempts at a version that failed because servers were unavailable"
    )
    lease_s: float = Field(
        10.0, gt=0.5, le=300, description="how long agents stay reserved for a transfer that stops answering"
    )


class TransferSettings(Settings):
    """`transfer.yaml`: the settings of a transfer."""

    repository: str = Field(description="where versions are published: directory, s3:// or hdfs://")
    format: Literal["repository", "sequencefile"] = Field(
        "repository", description="its format: a repository, or base.txt and patch.txt of Paddle's tools"
    )
    models: tuple[str, ...] = Field(min_length=1, max_length=64, description="models to roll out")
    state: Path = Field(description="directory of the journal and builds; one transfer per directory")
    shards: tuple[tuple[InstanceSettings, ...], ...] = Field(
        min_length=1, max_length=4096, description="for each shard, in order, its replicas"
    )
    token_file: Path | None = Field(None, description="file with the secret shared by transfer, agents and servers")
    read_token_file: Path | None = Field(None, description="file with a second secret, for reading the status only")
    address: str | None = Field(
        None,
        description="URL at which agents reach this transfer; default: the address it listens on",
    )
    source: Literal["http", "location"] = Field(
        "http", description="agents fetch from this transfer, or directly from its build directory (a shared disk)"
    )
    poll_s: float = Field(0.5, gt=0, le=3600, description="seconds between checks of the donefile")
    require: RequireSettings = Field(RequireSettings(), description="when a version may be activated")
    build: BuildSettings = Field(BuildSettings(), description="index files")
    patience: PatienceSettings = Field(PatienceSettings(), description="deadlines and retries")
    resident: int = Field(2, ge=2, le=16, description="versions kept in the servers' memory, for immediate rollback")
    tls: TlsSettings | None = Field(
        None, description="certificate to serve HTTPS with, and authority of the agents' certificates; default: no TLS"
    )

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        for model in models:
            try:
                check_model(model)
            except ElasticCTRError as e:
                raise ValueError(str(e)) from None
        return models

    @model_validator(mode="after")
    def _check_shards(self) -> Self:
        agents = [instance.agent for shard in self.shards for instance in shard]
        if not all(self.shards):
            raise ValueError("a shard without replicas; list at least one agent for each shard")
        if len(set(agents)) != len(agents):
            raise ValueError("an agent is listed twice; each serves one replica of one shard")
        if self.require.min_replicas > min(len(shard) for shard in self.shards):
            raise ValueError("require.min_replicas is larger than the number of replicas of a shard")
        return self
