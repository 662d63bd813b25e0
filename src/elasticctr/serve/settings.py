"""serve.yaml: where the prediction server listens, what it serves, and what it does when rows are missing.

For `elasticctr serve`; its flags for one model make the same settings. Precedence: default < file <
ELASTICCTR__SERVE__KEY in the environment < flag.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from elasticctr.config import Settings, apply_overrides, load_yaml, parse_settings
from elasticctr.config.loading import ENV_PREFIX
from elasticctr.config.tls import TlsSettings, anchor
from elasticctr.errors import ConfigError, ElasticCTRError
from elasticctr.serve.activation.reload_stamp import ReloadType
from elasticctr.serve.feedback.settings import RequestLogSettings
from elasticctr.versions.manifest import check_name

OnTrouble = Literal["fail", "degrade"]
LIVE = "live"
_ENV_SECTION = f"{ENV_PREFIX}SERVE__"


class LimitSettings(Settings):
    """Limits of one request and of all requests together."""

    body_mib: int = Field(8, ge=1, le=1024, description="largest request body, in MiB")
    samples: int = Field(10_000, ge=1, le=1_000_000, description="most samples or candidates in a request")
    values: int = Field(1_000_000, ge=1, le=100_000_000, description="most feasigns in a request")
    queue_ms: int = Field(
        100, ge=1, le=60_000, description="requests are refused when the oldest has waited longer than this"
    )
    queue_requests: int = Field(10_000, ge=1, le=1_000_000, description="most requests in the queue")
    timeout_ms: int = Field(1000, ge=1, le=600_000, description="deadline of a request that names none")
    batch_samples: int = Field(
        256, ge=1, le=1_000_000, description="a micro-batch of this size takes no further request"
    )
    batch_wait_us: int = Field(0, ge=0, le=1_000_000, description="how long an idle worker waits for more requests")
    max_connections: int = Field(20_000, ge=1, le=1_000_000, description="connections beyond this are closed at once")
    max_connections_per_address: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="the same for one client address; 0: a quarter of all, at least 256",
    )
    request_timeout_s: int = Field(
        15, ge=1, le=3600, description="time for a request to arrive completely and for an answer to be read"
    )

    def native(self) -> dict[str, Any]:
        """The attributes of `_native.PredictServiceOptions`, which have the same names but count bytes."""
        limits = self.model_dump()
        return {"body_bytes": int(limits.pop("body_mib") * (1 << 20)), **limits}


class VerifySettings(Settings):
    """Checks that a version must pass before it may answer. Checksums are always verified."""

    parity: bool = Field(True, description="score samples.json and compare with the scores stored there")
    tolerance: float | None = Field(
        None, gt=0, le=1, description="largest difference of a score; default: what samples.json says"
    )
    warmup: tuple[int, ...] = Field(
        (1, 16, 256), max_length=16, description="sizes of batches scored before the version goes live; empty: none"
    )

    @field_validator("warmup")
    @classmethod
    def _check_warmup(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= size <= 100_000 for size in sizes):
            raise ValueError("a warm-up batch must have 1 to 100000 samples")
        return sizes


class PolicySettings(Settings):
    """What to do when rows are missing. Degraded answers are marked and counted."""

    missing_rows: OnTrouble = Field("degrade", description="what to do when fewer rows than min_coverage are found")
    min_coverage: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of a request's rows that must be found; 0: only a request without any row is degraded",
    )
    dead_shards: OnTrouble = Field("fail", description="what to do when a shard of the Cube does not answer")
    late_cube: OnTrouble = Field("fail", description="what to do when the Cube does not answer within cube_timeout_ms")
    cube_timeout_ms: int = Field(200, ge=1, le=60_000, description="for the lookups of one micro-batch")


class ModelVariantSettings(Settings):
    """One way to answer. Several share the traffic by weight; a shadow is scored too but never returned."""

    name: str = Field(description="name in answers and metrics; `live` is the version that follows the donefile")
    version: int | None = Field(None, ge=1, description="version of the model; default for `live`: the live one")
    model: str | None = Field(
        None, description="another model of this server whose live version answers, instead of a version"
    )
    weight: float = Field(
        1.0, ge=0, le=1_000_000, description="share of the requests; for a shadow, the share that it scores too"
    )
    shadow: bool = Field(False, description="scored in addition to the answer and counted, never returned")

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return _checked(name, "variant")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == LIVE and (self.model is not None or self.version is not None or self.shadow):
            raise ValueError("variant 'live' is the model's live version; choose another name for a variant")
        if self.name != LIVE and (self.version is None) == (self.model is None):
            raise ValueError(f"variant {self.name!r}: give a version, or another model of this server")
        if self.shadow and self.weight > 1:
            raise ValueError(f"variant {self.name!r}: a shadow's weight is a share and must be at most 1")
        return self


class ServedModelSettings(Settings):
    """One model: where its versions and rows come from, and its policies."""

    name: str = Field(description="name of the model, as in requests")
    repo: str = Field(description="repository of published versions: directory, s3:// or hdfs://")
    published_as: str | None = Field(None, description="name in the repository; default: the same")
    cube: Path | None = Field(
        None,
        description="cube.yaml or cube.conf of the Cube with its rows; default: index files in this process",
    )
    index_dir: Path | None = Field(
        None, description="where index files and state are kept; default: a cache directory of this user"
    )
    residence: Literal["memory", "mapped"] = Field(
        "memory",
        description="`memory`: index files are copied into memory; `mapped`: they are mapped and paged by the system",
    )
    build_threads: int = Field(
        1, ge=1, le=256, description="threads that build index files while requests are answered"
    )
    keep: int = Field(2, ge=1, le=16, description="versions kept ready: the live one and those to roll back to")
    follow: bool = Field(True, description="take up what the donefile announces; false: only what is activated by hand")
    poll_s: float = Field(1.0, gt=0, le=3600, description="seconds between checks of the donefile")
    reload_meta: Path | None = Field(
        None, description="a file; announced versions are served only once it changes in the sense of reload_type"
    )
    reload_type: ReloadType = Field("timestamp_ne", description="which change of reload_meta counts")
    cube_wait_s: float = Field(
        600.0, gt=0, le=86_400, description="how long a version waits for the Cube before it fails"
    )
    pin_s: float = Field(900.0, ge=10, le=604_800, description="how long versions in use are protected from pruning")
    verify: VerifySettings = Field(VerifySettings(), description="checks before a version may answer")
    policy: PolicySettings = Field(PolicySettings(), description="what to do when rows are missing")
    variants: tuple[ModelVariantSettings, ...] = Field(
        (),
        max_length=32,
        description="experiments at the start; without `live`, the live version gets what the weights leave of 1",
    )
    sticky: str | None = Field(None, description="request field whose value decides the variant; default: random")
    paddle_default: bool = Field(False, description="answers Paddle Serving calls that name no model")
    paddle_feeds: dict[str, str] = Field(
        {},
        description="slots of tensors that Paddle Serving's clients give other names; `dense_input`: all dense slots",
    )

    @property
    def published(self) -> str:
        return self.published_as or self.name

    @field_validator("name", "published_as")
    @classmethod
    def _check_names(cls, name: str | None) -> str | None:
        return None if name is None else _checked(name, "model")

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        check_variants(self.variants)
        return self


class ServeSettings(Settings):
    """`serve.yaml`: a prediction server."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0: all")
    port: int = Field(8500, ge=0, le=65535, description="port for HTTP and bRPC; 0: any free port")
    grpc_port: int | None = Field(
        8501, ge=-1, le=65535, description="port for gRPC; 0: any free port, null or -1: no gRPC"
    )
    threads: int = Field(0, ge=0, le=1024, description="scoring threads; 0: one per core")
    loops: int = Field(1, ge=1, le=64, description="event loops that read and write sockets")
    token_file: Path | None = Field(None, description="file with the secret that clients must show")
    read_token_file: Path | None = Field(None, description="file with a second secret, for predictions and status only")
    insecure: bool = Field(False, description="allow listening beyond loopback without a token")
    tls: TlsSettings | None = Field(
        None, description="certificate and key of both ports, authority of the Cube's servers; default: no TLS"
    )
    access_log: Path | None = Field(None, description="file for one JSON line per request; `-`: stderr")
    request_log: RequestLogSettings | None = Field(
        None, description="keeps requests and scores for training and replay; default: no log"
    )
    drain_s: float = Field(5.0, ge=0, le=600, description="seconds to keep answering after SIGTERM, while not ready")
    limits: LimitSettings = Field(LimitSettings(), description="what requests may cost")
    models: tuple[ServedModelSettings, ...] = Field(min_length=1, max_length=64, description="what is served")

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"two models are named {max(names, key=names.count)!r}; rename one")
        for model in self.models:
            for variant in model.variants:
                if variant.model is not None and (variant.model not in names or variant.model == model.name):
                    raise ValueError(
                        f"model {model.name!r}: variant {variant.name!r} uses model {variant.model!r}, which is not "
                        "another model of this server"
                    )
        if sum(model.paddle_default for model in self.models) > 1:
            raise ValueError("paddle_default is set for two models; only one can answer calls that name none")
        return self


def check_variants(variants: tuple[ModelVariantSettings, ...]) -> None:
    """Raises ValueError if variants contradict each other."""
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise ValueError(f"two variants are named {max(names, key=names.count)!r}; rename one")
    answering = [variant for variant in variants if not variant.shadow]
    total = sum(variant.weight for variant in answering)
    if LIVE in names:
        if total <= 0:
            raise ValueError("no variant has a weight above 0; give at least one")
    elif total > 1:
        raise ValueError(f"the weights add up to {total:g}; without a variant 'live' they must add up to at most 1")


def load_settings(
    path: Path | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    base: Mapping[str, Any] | None = None,
) -> ServeSettings:
    """The settings of a file, overridden by the environment and then by `flags`: keys as in the file, None if not
    given. Keys of a model are for the single model of a server started without a file. `base` has the lowest
    precedence; it holds another program's settings."""
    loaded = {**(base or {}), **({} if path is None else _anchor(load_yaml(path), path.parent))}
    loaded = apply_overrides(loaded, environ=_own(os.environ if environ is None else environ))
    given = {key: value for key, value in flags.items() if value is not None}
    own = {key: given.pop(key) for key in list(given) if key in ServedModelSettings.model_fields}
    if own and loaded.get("models"):
        keys = ", ".join(f"--{_flag(key)}" for key in own)
        raise ConfigError(f"{keys}: the settings file lists the models; set it there, or omit the settings file")
    if not loaded.get("models"):
        if not {"repo", "name"} <= set(own):
            raise ConfigError("nothing to serve; give --repo REPO --model NAME, or a settings file with 'models'")
        loaded["models"] = [own]
    for section in ("tls", "request_log"):
        own = {key.removeprefix(f"{section}_"): given.pop(key) for key in list(given) if key.startswith(f"{section}_")}
        if own:
            loaded[section] = {**(loaded.get(section) or {}), **own}
    return parse_settings(ServeSettings, {**loaded, **given}, "serve" if path is None else str(path))


def _own(environ: Mapping[str, str]) -> dict[str, str]:
    """ELASTICCTR__SERVE__LIMITS__SAMPLES is limits.samples here; other sections belong to other programs."""
    return {
        ENV_PREFIX + name.removeprefix(_ENV_SECTION): text
        for name, text in environ.items()
        if name.startswith(_ENV_SECTION)
    }


def _anchor(loaded: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Makes paths in a file relative to it. Leaves wrong values to validation."""

    def join(settings: Any, *keys: str) -> Any:
        if not isinstance(settings, dict):
            return settings
        places = {key: settings[key] for key in keys if isinstance(settings.get(key), str)}
        return settings | {
            key: value if "://" in value or value == "-" else str(directory / value) for key, value in places.items()
        }

    anchored: dict[str, Any] = join(loaded, "token_file", "read_token_file", "access_log")
    if "request_log" in loaded:
        anchored["request_log"] = join(loaded["request_log"], "directory")
    if "tls" in loaded:
        anchored["tls"] = anchor(loaded["tls"], directory)
    if isinstance(loaded.get("models"), list):
        anchored["models"] = [join(model, "repo", "cube", "index_dir", "reload_meta") for model in loaded["models"]]
    return anchored


def _flag(key: str) -> str:
    return {"name": "model", "poll_s": "poll"}.get(key, key.replace("_", "-"))


def _checked(name: str, what: str) -> str:
    try:
        return check_name(name, what)
    except ElasticCTRError as e:
        raise ValueError(str(e)) from None
