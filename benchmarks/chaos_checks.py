"""What must hold after the chaos: every replica answers the published rows, and every announced version is whole."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import ElasticCTRError
from elasticctr.versions.manifest import Manifest
from elasticctr.versions.repository import Repository
from elasticctr.versions.sparse import get_rows, read_part
from elasticctr.versions.verification import verify_version
from stack import Stack

MOST_VERIFIED = 60


def count_wrong_rows(stack: Stack, repository: Repository, model: str, version: int, replica: int) -> tuple[int, int]:
    """Wrong ones and all that were asked: every row of a version, from one replica of each shard."""
    chain = repository.chain(model, version)
    table = next(iter(chain[-1].tables))
    batch = np.unique(np.concatenate([np.arange(50, dtype=np.uint64), *_feasigns(repository, chain, table)]))
    expected, found = get_rows(repository, chain, table, batch)
    shards = [[one[replica].url.removeprefix("http://")] for one in stack.cube]
    settings = CubeSettings(shards=shards, timeout_ms=30_000, connect_ms=5000)
    with CubeClient(settings, stack.token) as client:
        answer = client.get(f"{model}/{table}", batch, version=version)
    return int(((answer.found != found) | (answer.rows != expected).any(axis=1)).sum()), len(batch)


def find_lost_versions(repository: Repository, model: str, draw: random.Random) -> list[str]:
    """Messages about versions that were announced and are not there or not whole; some of many are looked at."""
    versions = sorted({event.version for event in repository.events(model) if event.kind == "publish"})
    lost = []
    for version in draw.sample(versions, min(MOST_VERIFIED, len(versions))):
        try:
            verify_version(repository, model, version)
        except ElasticCTRError as e:
            lost.append(f"{model} version {version} is lost: {e}")
    return lost


def _feasigns(repository: Repository, chain: Sequence[Manifest], table: str) -> Iterator[NDArray[np.uint64]]:
    for manifest in chain:
        for file in manifest.parts(table):
            for feasigns, _ in read_part(repository, manifest, file):
                yield feasigns
