"""Certificates change while servers run: new connections get the new one, open ones stay, bad files change nothing."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import grpc
import pytest
from tests.cluster.certificate import make_certificate
from tests.unit.serve.live import Live, live_server

from elasticctr.config.tls import TlsSettings
from elasticctr.errors import FailedPrecondition
from elasticctr.net.certificates import Certificate
from elasticctr.serve.kserve.grpc_server import GrpcOptions, GrpcServer


def shown_by(port: int) -> str:
    """The certificate that a new connection is shown, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain, context.wrap_socket(plain) as secure:
        der = secure.getpeercert(binary_form=True)
        assert der is not None
        return ssl.DER_cert_to_PEM_cert(der).strip()


def replace(file: Path, by: Path) -> None:
    """As certificate managers do: replaced in one step by another file."""
    beside = file.with_suffix(".new")
    beside.write_bytes(by.read_bytes())
    beside.replace(file)


@pytest.fixture
def pairs(tmp_path: Path) -> list[tuple[Path, Path]]:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    return [make_certificate(folder) for folder in folders]


def grpc_of(live: Live, cert: Path, key: Path) -> GrpcServer:
    options = GrpcOptions(port=0, tls_cert=cert, tls_key=key)
    made = GrpcServer(options, live.server.native, live.fleet)
    made.start()
    return made


def is_live_over_grpc(port: int, authority: bytes) -> bool:
    credentials = grpc.ssl_channel_credentials(authority)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        try:
            return bool(channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=60))
        except grpc.RpcError:
            return False


def test_new_files_are_taken_up(tmp_path: Path, pairs: list[tuple[Path, Path]]) -> None:
    (cert, key), (new_cert, new_key) = pairs
    first, second = cert.read_text().strip(), new_cert.read_text().strip()
    with live_server(tmp_path, tls_cert=cert, tls_key=key) as live:
        over_grpc = grpc_of(live, cert, key)
        certificate = Certificate(TlsSettings(cert=cert, key=key), [live.server.reload_tls, over_grpc.reload_tls])
        assert live.get("/healthz").status_code == 200  # this connection stays open
        certificate.look()
        assert shown_by(live.server.port) == first and is_live_over_grpc(over_grpc.port, first.encode())

        replace(cert, new_cert)
        certificate.look()
        assert shown_by(live.server.port) == first, "the key does not belong to it yet"
        assert is_live_over_grpc(over_grpc.port, first.encode())
        certificate.look()

        replace(key, new_key)
        certificate.look()
        assert shown_by(live.server.port) == second
        assert is_live_over_grpc(over_grpc.port, second.encode())
        assert not is_live_over_grpc(over_grpc.port, first.encode())
        live.still_answers()

        key.unlink()
        certificate.look()
        assert shown_by(live.server.port) == second
        over_grpc.stop(0)


def test_a_server_without_tls_takes_no_certificate(tmp_path: Path, pairs: list[tuple[Path, Path]]) -> None:
    with live_server(tmp_path) as live, pytest.raises(FailedPrecondition, match="without TLS"):
        live.server.native.set_tls(str(pairs[0][0]), str(pairs[0][1]), "")
