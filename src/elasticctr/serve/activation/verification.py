"""Checks a version before it may answer: its parts fit together and its scores match the publisher's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.errors import ConfigError, Corruption, DataError, InternalError, Unavailable
from elasticctr.serve.settings import VerifySettings
from elasticctr.versions.manifest import Manifest
from elasticctr.versions.samples import SAMPLES, make_batch, parse_samples, read_tolerance
from elasticctr.versions.serving_schema import ServingSchema

_TIMEOUT_MS = 10_000
_REQUESTS = 16
_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked and found correct."""

    samples: int
    worst: float  # largest difference of a score
    warmed_up: int  # samples scored without comparing the scores
    tables: tuple[str, ...]


def check_tables(schema: ServingSchema, manifest: Manifest, where: str) -> None:
    """Checks that the schema's tables are those of the version, with the same width."""
    for name, table in schema.tables.items():
        entry = manifest.tables.get(name)
        if entry is None:
            known = ", ".join(manifest.tables) or "none"
            raise Corruption(f"{where}: its schema uses table {name!r}, but its manifest has {known}")
        if entry.dim != table.dim:
            raise Corruption(f"{where}: table {name!r} has {entry.dim} floats per row, but its schema says {table.dim}")


def check_scores(
    version: _native.ServedVersion, schema: ServingSchema, samples: bytes, settings: VerifySettings, where: str
) -> Checked:
    """Scores the samples of samples.json, and larger batches of them. Raises Corruption."""
    batch, expected = parse_samples(samples, schema.samples, f"{where}/{SAMPLES}")
    worst = 0.0
    if settings.parity and len(batch):
        scores, reasons = _score(version, batch, where)
        if scores.shape != expected.shape:
            raise Corruption(f"{where}: scores have shape {scores.shape}, but {SAMPLES} has {expected.shape}")
        worst = float(np.abs(scores - expected).max(initial=0.0))
        allowed = settings.tolerance or read_tolerance(samples)
        if not worst <= allowed and reasons:
            raise Unavailable(f"{where}: cannot be checked now: {'; '.join(reasons)}")
        if not worst <= allowed:
            raise Corruption(
                f"{where}: its scores differ from {SAMPLES} by {worst:.3g}, more than the allowed {allowed:g}; "
                "publish it again"
            )
    warmed_up = 0
    for size in settings.warmup if len(batch) else ():
        _score(version, batch.take(np.arange(size) % len(batch)), where)
        warmed_up += size
    return Checked(len(batch), worst, warmed_up, tuple(schema.tables))


def check_shared(
    version: _native.ServedVersion, schema: ServingSchema, samples: bytes, settings: VerifySettings, where: str
) -> str:
    """Why shared values may not go through the first layer once per request: scores would differ from the stored ones.
    Empty if they may."""
    batch, expected = parse_samples(samples, schema.samples, f"{where}/{SAMPLES}")
    if version.why_whole or not (settings.parity and len(batch)):
        return ""
    # Each sample several times as the only candidate; every second slot is the user's.
    requests = [_as_request(batch, i) for i in range(min(len(batch), _REQUESTS))]
    try:
        scored = version.score_requests(requests, _TIMEOUT_MS)
    except InternalError as e:
        return str(e)
    worst = max(float(np.abs(scores - expected[i]).max()) for i, (scores, *_) in enumerate(scored))
    reasons = [reason for _, _, _, reasons, _ in scored for reason in reasons]
    allowed = settings.tolerance or read_tolerance(samples)
    if worst <= allowed or reasons:
        return ""
    return f"scores would differ from those in {SAMPLES} by {worst:.3g}, more than the allowed {allowed:g}"


_Arrays = tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.float32]]


def _as_request(batch: Batch, i: int) -> tuple[_Arrays, _Arrays]:
    slots = []
    for number in range(len(batch.schema.sparse)):
        values, offsets = batch.slot(number)
        slots.append(values[offsets[i] : offsets[i + 1]].tolist())
    dense = batch.dense[i].tolist()
    shared = make_batch(batch.schema, [[v if n % 2 == 0 else []] for n, v in enumerate(slots)], [dense])
    own = make_batch(
        batch.schema, [[v if n % 2 else []] * _CANDIDATES for n, v in enumerate(slots)], [dense] * _CANDIDATES
    )
    return (own.values, own.offsets, own.dense), (shared.values, shared.offsets, shared.dense)


def _score(version: _native.ServedVersion, batch: Batch, where: str) -> tuple[NDArray[np.float32], list[str]]:
    """Scores, and why they may be degraded."""
    try:
        found = version.score_batch(batch.values, batch.offsets, batch.dense, _TIMEOUT_MS)
    except (InternalError, DataError, ConfigError) as e:
        # The parts of the version do not fit together.
        raise Corruption(f"{where}: cannot score its own samples: {e}") from None
    scores, _, _, reasons, _ = found
    if not np.isfinite(scores).all():
        raise Corruption(f"{where}: its scores are not finite; publish it again")
    return np.asarray(scores, dtype=np.float32), reasons
