"""A served version with rows on a Cube: as with local files, and with servers that are dead or late."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from tests.process.cube.serving import ServerProcess
from tests.unit.serve.activation.test_served_version import serve
from tests.unit.serve.making import Made, make_graph

from elasticctr import _native
from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.data.batch import Batch
from elasticctr.errors import DeadlineExceeded, Unavailable
from elasticctr.serve.activation.served_version import CubeRows, Served, make_served_version


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Made, list[ServerProcess], CubeClient]]:
    made = Made(tmp_path_factory.mktemp("cube"), shards=2)
    servers = [ServerProcess(made.data(shard)) for shard in range(2)]
    for server in servers:
        server.load(made.version)
    shards = tuple((f"127.0.0.1:{server.port}",) for server in servers)
    with CubeClient(CubeSettings(shards=shards, timeout_ms=60_000, connect_ms=60_000, retries=1)) as client:
        yield made, servers, client
    for server in servers:
        server.process.kill()
        server.process.wait()


def test_a_cube_scores_as_local_files_do(cube: tuple[Made, list[ServerProcess], CubeClient]) -> None:
    made, _, client = cube
    remote, local = serve(made, CubeRows(client, "ctr")), serve(made)
    batch = made.samples(local.schema, 200)
    over_network, here = remote.score(batch), local.score(batch)
    assert over_network.scores.tobytes() == here.scores.tobytes()
    assert (over_network.asked, over_network.found) == (here.asked, here.found)
    other = Served(
        make_served_version("ctr", 9, local.schema, make_graph(), CubeRows(client, "ctr"), None, "graph"), local.schema
    )
    with pytest.raises(Unavailable, match="version 9"):
        other.score(batch)


def zeros_of_shard(made: Made, batch: Batch, shard: int) -> Made:
    """The files without a shard's rows."""
    lost = [_native.shard_of(int(feasign), 2) == shard for feasign in made.feasigns]
    changed = Made.__new__(Made)
    changed.__dict__ = {**made.__dict__, "rows": {t: rows.copy() for t, rows in made.rows.items()}}
    for rows in changed.rows.values():
        rows[np.array(lost)] = 0
    return changed


def test_a_dead_shard_fails_or_degrades_as_the_policy_says(cube: tuple[Made, list[ServerProcess], CubeClient]) -> None:
    made, servers, _ = cube
    dead = ServerProcess(made.data(1))
    dead.load(made.version)
    shards = ((f"127.0.0.1:{servers[0].port}",), (f"127.0.0.1:{dead.port}",))
    with CubeClient(CubeSettings(shards=shards, timeout_ms=60_000, connect_ms=60_000, retries=1)) as client:
        strict = serve(made, CubeRows(client, "ctr"))
        lenient = serve(made, CubeRows(client, "ctr"), dead_shards="degrade", late_cube="degrade")
        batch = made.samples(strict.schema, 50)
        assert strict.score(batch).reasons == []
        dead.process.kill()
        dead.process.wait()
        with pytest.raises(Unavailable, match="shard 1"):
            strict.score(batch)
        result = lenient.score(batch)
        assert result.reasons == ["shard 1 did not answer"] and 0 < result.found < result.asked
        expected = zeros_of_shard(made, batch, 1).expected(strict.schema, make_graph(), batch)
        assert np.abs(result.scores - expected).max() <= 1e-6


def test_a_late_cube_fails_or_degrades_as_the_policy_says(cube: tuple[Made, list[ServerProcess], CubeClient]) -> None:
    made, _, _ = cube
    slow = [ServerProcess(made.data(shard)) for shard in range(2)]
    for server in slow:
        server.load(made.version)
    shards = tuple((f"127.0.0.1:{server.port}",) for server in slow)
    with CubeClient(CubeSettings(shards=shards, timeout_ms=60_000, connect_ms=60_000, backup_ms=0)) as client:
        patient = serve(made, CubeRows(client, "ctr"), late_cube="degrade", cube_timeout_ms=60_000)
        strict = serve(made, CubeRows(client, "ctr"), cube_timeout_ms=100)
        lenient = serve(made, CubeRows(client, "ctr"), late_cube="degrade", cube_timeout_ms=100)
        batch = made.samples(strict.schema, 20)
        assert patient.score(batch).reasons == []
        for server in slow:
            server.process.send_signal(signal.SIGSTOP)
            # The signal is sent when this returns, and acted on a little later.
            os.waitpid(server.process.pid, os.WUNTRACED)
        with pytest.raises(DeadlineExceeded):
            strict.score(batch)
        result = lenient.score(batch)
        assert result.reasons == ["Cube was late"] and result.found == 0 < result.asked
    for server in slow:
        server.process.kill()
        server.process.wait()
