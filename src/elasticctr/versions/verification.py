"""Checks a version completely: digests of all files of its chain, rows in the right files, scores as stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import Corruption, NotFound
from elasticctr.versions.manifest import FileEntry, Manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.samples import SAMPLES, parse_samples, read_tolerance
from elasticctr.versions.scoring import DenseGraph, make_inputs
from elasticctr.versions.serving_schema import SCHEMA, parse_serving_schema
from elasticctr.versions.sparse import get_rows, read_part

_READ_BYTES = 1 << 20
GRAPH = "dense/model.onnx"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked and found correct."""

    model: str
    version: int
    chain: tuple[int, ...]
    files: int
    bytes: int
    rows: int
    samples: int
    worst: float  # largest difference of a score


def verify_version(
    repository: Repository, model: str, version: int, advance: Callable[[int], None] = lambda count: None
) -> Verified:
    """Raises Corruption, or NotFound for a missing file. `advance` is called with the bytes read."""
    chain = repository.chain(model, version)
    rows = 0
    for manifest in chain:
        for file in manifest.files:
            check_digest(repository, manifest, file)
            advance(file.bytes)
        rows += sum(_check_table(repository, manifest, table) for table in manifest.tables)
    samples, worst = check_scores(repository, chain)
    return Verified(
        model,
        version,
        tuple(manifest.version for manifest in chain),
        sum(len(manifest.files) for manifest in chain),
        sum(manifest.bytes for manifest in chain),
        rows,
        samples,
        worst,
    )


def check_digest(repository: Repository, manifest: Manifest, file: FileEntry) -> None:
    where = f"{repository.url}/{manifest.model}/{manifest.version}/{file.name}"
    digest, count = hashlib.sha256(), 0
    try:
        with repository.open_part(manifest.model, manifest.version, file.name) as raw:
            while data := raw.read(_READ_BYTES):
                digest.update(data)
                count += len(data)
    except NotFound:
        raise Corruption(f"{where}: is in the manifest but missing; publish a new version") from None
    if count != file.bytes:
        raise Corruption(f"{where}: {count} bytes, but the manifest says {file.bytes}; publish a new version")
    if digest.hexdigest() != file.sha256:
        raise Corruption(f"{where}: does not match the digest in the manifest; publish a new version")


def _check_table(repository: Repository, manifest: Manifest, table: str) -> int:
    """Checks the rows of one table in one version: each in its part, once, and as many as the manifest says."""
    entry = manifest.tables[table]
    parts, gone = manifest.parts(table), manifest.parts(table, "gone")
    rows = _feasigns(repository, manifest, parts)
    dropped = _feasigns(repository, manifest, gone)
    where = f"{repository.url}/{manifest.model}/{manifest.version}: table {table!r}"
    if len(rows) != entry.rows or len(dropped) != entry.gone:
        raise Corruption(
            f"{where}: {len(rows)} rows and {len(dropped)} gone, but the manifest says {entry.rows} and {entry.gone}"
        )
    everything = np.sort(np.concatenate([rows, dropped]))
    if (everything[1:] == everything[:-1]).any():
        raise Corruption(f"{where}: a feasign occurs twice")
    return len(rows)


def _feasigns(repository: Repository, manifest: Manifest, files: list[FileEntry]) -> NDArray[np.uint64]:
    found = [np.zeros(0, dtype=np.uint64)]
    for number, file in enumerate(files):
        for feasigns, _ in read_part(repository, manifest, file):
            # A sample of each batch; the digest already proves that the rest is what was written.
            if any(_native.shard_of(int(f), len(files)) != number for f in feasigns[:: max(1, len(feasigns) // 64)]):
                raise Corruption(
                    f"{repository.url}/{manifest.model}/{manifest.version}/{file.name}: holds a feasign of another part"
                )
            found.append(feasigns)
    return np.concatenate(found)


def check_scores(repository: Repository, chain: list[Manifest]) -> tuple[int, float]:
    """Scores samples.json with the version's own files: how many samples, and the largest difference."""
    last = chain[-1]
    where = f"{repository.url}/{last.model}/{last.version}"

    def read(name: str) -> bytes:
        return repository.read_file(last.model, last.version, name)

    schema = parse_serving_schema(read(SCHEMA), f"{where}/{SCHEMA}")
    samples = read(SAMPLES)
    batch, scores = parse_samples(samples, schema.samples, f"{where}/{SAMPLES}")
    inputs = make_inputs(schema, batch, lambda table, feasigns: get_rows(repository, chain, table, feasigns))
    again = DenseGraph(read(GRAPH), f"{where}/{GRAPH}").scores(inputs)
    worst = float(np.abs(again - scores).max(initial=0.0))
    if not worst <= read_tolerance(samples):
        raise Corruption(f"{where}: the scores of its files differ from those in {SAMPLES} by {worst:.3g}")
    return len(batch), worst
