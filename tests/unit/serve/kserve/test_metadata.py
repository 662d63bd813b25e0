"""What KServe's calls answer means the same to Triton's generated classes."""

from __future__ import annotations

import pytest
from tests.unit.serve.kserve.fleet import METRICS, FakeFleet
from tritonclient.grpc import service_pb2

from elasticctr.errors import DataError
from elasticctr.serve import protobuf
from elasticctr.serve.kserve import metadata as kserve

FLEET = FakeFleet()


def test_server_metadata() -> None:
    encoded = protobuf.make_from_json("inference.ServerMetadataResponse", kserve.describe_server())
    message = service_pb2.ServerMetadataResponse.FromString(encoded)
    assert message.name == "elasticctr"
    assert list(message.extensions) == list(kserve.EXTENSIONS)


def test_a_text_that_is_not_unicode_does_not_end_the_call() -> None:
    encoded = protobuf.make_from_json("inference.ServerMetadataResponse", {"name": "a\udcff"})
    assert service_pb2.ServerMetadataResponse.FromString(encoded).name == "a?"


def test_model_metadata() -> None:
    described = kserve.describe_model(FLEET, "ctr")
    message = service_pb2.ModelMetadataResponse.FromString(
        protobuf.make_from_json("inference.ModelMetadataResponse", described)
    )
    assert (message.name, list(message.versions), message.platform) == ("ctr", ["6", "7"], "elasticctr")
    for got, expected in zip(message.inputs, described["inputs"], strict=True):
        assert (got.name, got.datatype, list(got.shape)) == tuple(expected.values())
    (output,) = message.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("scores", "FP32", [-1, 2])


def test_model_config() -> None:
    encoded = protobuf.make_from_json("inference.ModelConfigResponse", {"config": kserve.configure_model(FLEET, "ctr")})
    config = service_pb2.ModelConfigResponse.FromString(encoded).config
    assert (config.name, config.backend, config.max_batch_size) == ("ctr", "elasticctr", 0)
    assert [(one.name, one.data_type, list(one.dims), one.optional) for one in config.input] == [
        ("user", 13, [-1, -1], True),
        ("item", 5, [-1, -1], True),
        ("age", 11, [-1, 1], True),
        ("vector", 11, [-1, 3], True),
    ]
    assert [(one.name, one.data_type, list(one.dims)) for one in config.output] == [("scores", 11, [-1, 2])]


def test_repository_index() -> None:
    encoded = protobuf.make_from_json("inference.RepositoryIndexResponse", {"models": kserve.list_models(FLEET)})
    models = service_pb2.RepositoryIndexResponse.FromString(encoded).models
    assert [(one.name, one.version, one.state) for one in models] == [
        ("ctr", "6", "READY"),
        ("ctr", "7", "READY"),
        ("empty", "", "UNAVAILABLE"),
    ]


def test_statistics() -> None:
    encoded = protobuf.make_from_json(
        "inference.ModelStatisticsResponse", {"model_stats": kserve.collect_statistics(METRICS, "ctr", "7")}
    )
    (stats,) = service_pb2.ModelStatisticsResponse.FromString(encoded).model_stats
    assert (stats.name, stats.version, stats.inference_count, stats.execution_count) == ("ctr", "7", 500, 12)
    assert (stats.inference_stats.success.count, stats.inference_stats.success.ns) == (12, 500_000_000)
    assert stats.inference_stats.fail.count == 3


def test_requests_are_read() -> None:
    sent = service_pb2.ModelMetadataRequest(name="ctré", version="7").SerializeToString()
    request = protobuf.parse("inference.ModelMetadataRequest", sent)
    assert (request.name, request.version) == ("ctré", "7")
    empty = protobuf.parse("inference.ModelMetadataRequest", b"")
    assert (empty.name, empty.version) == ("", "")


@pytest.mark.parametrize(
    "message", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x08" + b"\xff" * 11, b"\x09\x00", b"\x0a\x01\xff", b"\x0a\xff\xff"]
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(DataError, match="not a message of type"):
        protobuf.parse("inference.ModelReadyRequest", message)
