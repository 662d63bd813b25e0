"""A process that publishes made-up versions for ever: `python -m tests.cluster.publishing REPO`.

Prints the number of each version once it is announced. Waits its turn when another publishes.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.versions import Manifest, Repository, Segment
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.removal import carry_out, plan_removal
from elasticctr.versions.writer import VersionWriter, next_version
from tests.unit.versions.synthetic import DIM, MadeRows

MODEL = "ctr"
ROWS = 2000
LEFT_S = 0.0  # dead publishers' leftovers, and old versions, go at once: nobody here is paused


def publish_next(repository: Repository) -> int:
    """A base every fourth version, deltas on it between."""
    with PublisherLease(repository.store, MODEL) as lease:
        carry_out(repository, plan_removal(repository, MODEL, young_s=LEFT_S), lease)
        found = repository.versions(MODEL)
        last: Manifest | None = found[-1] if found else None
        version = next_version(repository, MODEL)
        parent = last if last is not None and len(last.chain) < 3 else None
        writer = VersionWriter(repository, MODEL, version, lease)
        writer.add_file("schema.json", b"{}")
        rows = list(range(ROWS)) if parent is None else list(range(version % 7, ROWS, 7))
        writer.add_table(
            "main",
            (Segment(name="embedding", dim=DIM),),
            "fp32",
            MadeRows(version, rows),
            np.array([] if parent is None else [ROWS + version], dtype=np.uint64),
        )
        manifest = writer.commit("base" if parent is None else "delta", parent, {})
        writer.announce(manifest)
        carry_out(repository, plan_removal(repository, MODEL, 6, young_s=LEFT_S), lease)
    return version


def main() -> None:
    repository = Repository(sys.argv[1])
    while True:
        try:
            print(publish_next(repository), flush=True)
        except (Unavailable, FailedPrecondition):
            time.sleep(0.002)


if __name__ == "__main__":
    main()
