"""The gRPC server in front of an engine that only records requests."""

from __future__ import annotations

import builtins
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import grpc
import pytest
from tests.unit.serve.kserve.fleet import METRICS, FakeFleet
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from elasticctr.errors import ConfigError, Unavailable
from elasticctr.serve.kserve.grpc_server import GrpcOptions, GrpcServer

INFER = "/inference.GRPCInferenceService/ModelInfer"


class FakeEngine:
    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, int, str]] = []
        self.answer = b"\x00"
        self.token = ""
        self.release = threading.Event()
        self.release.set()

    def call(self, codec: str, body: bytes, *, timeout_ms: int = 0, peer: str = "") -> bytes:
        self.asked.append((codec, body, timeout_ms, peer))
        self.release.wait(60)
        return self.answer

    def matches(self, token: str) -> bool:
        return token == self.token if self.token else True

    def metrics(self) -> str:
        return METRICS


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(engine: FakeEngine) -> Iterator[GrpcServer]:
    server = GrpcServer(GrpcOptions(port=0, request_timeout_s=60, body_mib=0.1), engine, FakeFleet())
    server.start()
    yield server
    engine.release.set()
    server.stop(0)


@pytest.fixture
def channel(server: GrpcServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


def call(channel: grpc.Channel, body: bytes = b"", method: str = INFER, **options: Any) -> bytes:
    answer: bytes = channel.unary_unary(method)(body, timeout=options.pop("timeout", 60), **options)
    return answer


def code_of(channel: grpc.Channel, *args: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, *args, **options)
    return refused.value.code(), refused.value.details()


def test_bytes_go_to_the_engine_and_back(engine: FakeEngine, channel: grpc.Channel) -> None:
    engine.answer = b"\x00answer"
    assert call(channel, b"question", timeout=60) == b"answer"
    ((codec, body, timeout_ms, peer),) = engine.asked
    assert (codec, body) == ("kserve_grpc", b"question")
    assert 20_000 < timeout_ms <= 61_000  # the wire rounds up
    assert peer.startswith("ipv4:127.0.0.1:")


def test_without_a_deadline_the_engine_decides(engine: FakeEngine, channel: grpc.Channel) -> None:
    call(channel, timeout=None)
    assert engine.asked[0][2] == 0


def test_the_engines_errors_have_grpc_codes(engine: FakeEngine, channel: grpc.Channel) -> None:
    for number, code in (
        (3, grpc.StatusCode.INVALID_ARGUMENT),
        (4, grpc.StatusCode.DEADLINE_EXCEEDED),
        (5, grpc.StatusCode.NOT_FOUND),
        (8, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (9, grpc.StatusCode.FAILED_PRECONDITION),
        (14, grpc.StatusCode.UNAVAILABLE),
    ):
        engine.answer = bytes([number]) + "why — really".encode()
        assert code_of(channel) == (code, "why — really")
    engine.answer = b"\x03" + b"\xff" * 5000
    assert code_of(channel)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_the_token_is_asked_for(engine: FakeEngine, channel: grpc.Channel) -> None:
    engine.token = "secret"
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "secret"),)):
        assert code_of(channel, metadata=metadata)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert not engine.asked
    assert call(channel, metadata=(("authorization", "Bearer secret"),)) == b""
    assert call(channel, method="/grpc.health.v1.Health/Check") == b"\x08\x01"


def test_a_message_that_does_not_come_is_not_waited_for(engine: FakeEngine) -> None:
    server = GrpcServer(GrpcOptions(port=0, request_timeout_s=0.2), engine, FakeFleet())
    server.start()
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        never.wait()
        yield b""

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.RpcError) as cut:
            channel.stream_unary(INFER)(messages())
        never.set()
    assert cut.value.code() is grpc.StatusCode.CANCELLED
    assert not engine.asked
    server.stop(0)


@pytest.mark.promise(
    "hundreds of gRPC health checks, without a token, that send no message",
    "they block no prediction, are answered or cancelled within seconds, and health checks are still answered",
)
def test_health_checks_without_a_message_block_no_call(
    engine: FakeEngine, server: GrpcServer, channel: grpc.Channel
) -> None:
    engine.token = "secret"
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        never.wait()
        yield b""

    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as hostile:
            health = "/grpc.health.v1.Health/Check"
            held = [hostile.stream_unary(health).future(messages()) for _ in range(70)]
            refused = [hostile.stream_unary(INFER).future(messages()) for _ in range(70)]
            for _ in range(20):
                assert call(channel, metadata=(("authorization", "Bearer secret"),), timeout=60) == b""
                assert call(channel, method=health, timeout=60) == b"\x08\x01"
            codes = {one.code() for one in held}
            assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
            assert {one.code() for one in refused} == {grpc.StatusCode.UNAUTHENTICATED}
    finally:
        never.set()


def test_a_call_without_a_message_is_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.stream_unary(INFER)(iter(()))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_too_large_a_message_is_refused(channel: grpc.Channel, engine: FakeEngine) -> None:
    assert code_of(channel, b"x" * 200_000)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not engine.asked


def test_a_message_that_grows_when_unpacked_is_refused(channel: grpc.Channel, engine: FakeEngine) -> None:
    assert call(channel, b"x" * 90_000, compression=grpc.Compression.Gzip) == b""
    code, _ = code_of(channel, bytes(20_000_000), compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(engine.asked) == 1


def test_bytes_that_are_not_http2_do_not_harm_the_server(server: GrpcServer, channel: grpc.Channel) -> None:
    random = Random(1)
    for start in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRPC"):
        for _ in range(5):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            with connection, contextlib.suppress(OSError):
                connection.sendall(start + random.randbytes(500))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
    assert call(channel) == b""


def test_unknown_methods_are_unimplemented(channel: grpc.Channel) -> None:
    for method in ("/inference.GRPCInferenceService/ModelStreamInfer", "/x/y"):
        assert code_of(channel, method=method)[0] is grpc.StatusCode.UNIMPLEMENTED


def test_too_many_calls_are_refused_at_once(engine: FakeEngine) -> None:
    server = GrpcServer(GrpcOptions(port=0, threads=2, waiting=4), engine, FakeFleet())
    server.start()
    engine.release.clear()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        calls = [channel.unary_unary(INFER).future(b"", timeout=60) for _ in range(12)]
        while sum(one.done() for one in calls) < 8:
            time.sleep(0.01)
        refused = [one for one in calls if one.done()]
        engine.release.set()
        assert {one.code() for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(refused) == 8
        assert all(one.result() == b"" for one in calls if one not in refused)
    server.stop(0)


def test_calls_under_way_are_answered_when_it_stops(engine: FakeEngine) -> None:
    server = GrpcServer(GrpcOptions(port=0), engine, FakeFleet())
    server.start()
    engine.release.clear()
    engine.answer = b"\x00late"
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        under_way = channel.unary_unary(INFER).future(b"", timeout=60)
        while not engine.asked:
            time.sleep(0.01)
        stopping = threading.Thread(target=server.stop, args=(60.0,))
        stopping.start()
        time.sleep(0.1)
        engine.release.set()
        assert under_way.result(timeout=60) == b"late"
        stopping.join()


def test_health_of_server_and_models(channel: grpc.Channel) -> None:
    def check(service: str) -> bytes:
        name = service.encode()
        return call(channel, b"\x0a" + bytes([len(name)]) + name, method="/grpc.health.v1.Health/Check")

    assert check("inference.GRPCInferenceService") == b"\x08\x01"
    assert check("ctr") == b"\x08\x01"
    assert check("empty") == b"\x08\x02"
    assert code_of(channel, b"\x0a\x01x", method="/grpc.health.v1.Health/Check")[0] is grpc.StatusCode.NOT_FOUND


def test_metadata_as_triton_clients_ask_for_it(server: GrpcServer) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("ctr")
    assert not client.is_model_ready("ctr", "8")
    assert not client.is_model_ready("empty")
    assert client.get_server_metadata().name == "elasticctr"
    assert [one.name for one in client.get_model_metadata("ctr").inputs] == ["user", "item", "age", "vector"]
    assert client.get_model_config("ctr").config.name == "ctr"
    assert [one.state for one in client.get_model_repository_index().models] == ["READY", "READY", "UNAVAILABLE"]
    assert client.get_inference_statistics("ctr", "7").model_stats[0].inference_count == 500
    for ask in (client.get_model_metadata, client.get_model_config, client.get_inference_statistics):
        with pytest.raises(InferenceServerException) as missing:
            ask("nobody")
        assert "NOT_FOUND" in str(missing.value.status())
    with pytest.raises(InferenceServerException) as bad:
        client.get_model_metadata("ctr", "seven")
    assert "INVALID_ARGUMENT" in str(bad.value.status())
    client.close()


def test_a_taken_port_is_said_so(server: GrpcServer, engine: FakeEngine) -> None:
    with pytest.raises(Unavailable, match="taken"):
        GrpcServer(GrpcOptions(port=server.port), engine, FakeFleet())


def test_without_grpcio_it_says_what_to_install(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "grpc":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ConfigError, match="pip install"):
        GrpcServer(GrpcOptions(port=0), engine, FakeFleet())
