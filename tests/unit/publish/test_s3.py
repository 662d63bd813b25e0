"""A repository on S3, by a moto server: bases, deltas, rollback, retention, a crash, all with the same results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.unit.publish.synthetic import publish, row_values

from elasticctr.errors import Unavailable
from elasticctr.publish import Repository
from elasticctr.publish.lease import Lease
from elasticctr.publish.retention import clean, prune
from elasticctr.publish.rollback import rollback
from elasticctr.publish.sparse import get_rows


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="models")
        yield "s3://models/repo"
    server.stop()


def test_a_repository_on_s3(bucket: str):
    repository = Repository(bucket)
    assert repository.models() == []
    one = publish(repository, "ctr", 1, [1, 2, 3])
    two = publish(repository, "ctr", 2, [2], [3], one)
    publish(repository, "ctr", 3, [7], [], two)
    publish(repository, "ctr", 4, [8])
    assert repository.models() == ["ctr"]
    assert [m.version for m in repository.versions("ctr")] == [1, 2, 3, 4]
    asked = np.array([1, 2, 3, 7], dtype=np.uint64)
    rows, found = get_rows(repository, repository.chain("ctr", 3), "main", asked)
    assert found.tolist() == [True, True, False, True]
    assert rows[1].tolist() == row_values(2, asked[1:2])[0].tolist()
    with Lease(repository.store, "ctr"), pytest.raises(Unavailable, match="is publishing"):
        rollback(repository, "ctr")
    assert rollback(repository, "ctr").version == 3
    repository.store.write_bytes("ctr/5/sparse/main/part-00000.arrow", b"left by a killed publisher")
    assert clean(repository, "ctr") == [5]
    repository.pin("ctr", "server", [4], ttl_s=60)
    assert prune(repository, "ctr", 1) == []
    assert rollback(repository, "ctr", 4).version == 4
    publish(repository, "ctr", 6, [9])
    assert prune(repository, "ctr", 1) == [1, 2, 3]
    assert [m.version for m in repository.versions("ctr")] == [4, 6]
    assert repository.store.list("ctr") == ["4/", "6/", "donefile", "pins/"]
