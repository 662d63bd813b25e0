"""An S3 of this process, by moto, that every S3 client finds through the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def serving_s3(bucket: str) -> Iterator[Any]:
    """A boto3 client of a server that holds one empty bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1",
            }.items():
                patch.setenv(name, value)
            client = boto3.client("s3", endpoint_url=url)
            client.create_bucket(Bucket=bucket)
            yield client
    finally:
        server.stop()
