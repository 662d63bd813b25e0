"""A Cube, the prediction server that uses it, and their clients, with mutual TLS on every port."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from elasticctr import _native
from elasticctr.config.tls import TlsSettings
from elasticctr.cube.client import CubeClient as CubeClient
from elasticctr.cube.settings import CubeSettings
from elasticctr.errors import ElasticCTRError, FailedPrecondition, Unavailable
from elasticctr.net.client import Peer
from elasticctr.serve.client import PredictClient as PredictClient
from elasticctr.versions.repository import Repository
from tests.cluster.certificate import Authority, flags_of
from tests.cluster.harness import START_S, TOKEN, Cluster, free_port, wait_until
from tests.cluster.scored import Scored

pytestmark = pytest.mark.skipif(not _native.tls_library(), reason="built without TLS (no OpenSSL headers)")


def shown_by(port: int, tls: TlsSettings) -> int:
    """The number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=str(tls.ca))
    assert tls.cert is not None
    context.load_cert_chain(tls.cert, tls.key)
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        found = secure.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


@pytest.mark.slow
@pytest.mark.promise(
    "tokens, rows and predictions read on the wire between servers, agents, transfer, serve and clients",
    "with the four --tls options every port speaks only TLS, both ends show certificates, a wrong authority or a "
    "missing certificate is refused with the reason, and a certificate replaced on disk is used without a restart",
)
def test_every_port_of_a_fleet_speaks_mutual_tls(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "tls"), Authority(tmp_path / "strange", "another authority")
    with Cluster(tmp_path, shards=1, replicas=1, authority=authority) as cluster:
        scored = Scored(Repository(str(cluster.repository)))
        scored.base()
        cluster.start()
        cluster.wait_live(1)
        tls = cluster.tls
        assert tls is not None
        port = cluster.instances[0].server_port
        serve_port = _start_serve(cluster, tmp_path)
        ports = {"server": port, "agent": cluster.instances[0].agent_port, "transfer": cluster.transfer_port}
        ports["serve"] = serve_port
        _check_predictions(scored, serve_port, tls)
        _check_command(cluster, port, tls)
        _check_refusals(port, serve_port, tls, stranger)
        for agent_or_transfer in (ports["agent"], ports["transfer"]):
            with pytest.raises(Unavailable, match="authority that signed its certificate"):
                Peer(f"https://127.0.0.1:{agent_or_transfer}", TOKEN, tls=stranger.mutual("me")).get("/v1/status")
            with pytest.raises(Unavailable, match="if that port speaks TLS, call it with https"):
                Peer(f"http://127.0.0.1:{agent_or_transfer}", TOKEN).get("/v1/status")
            with pytest.raises(Unavailable):
                Peer(f"https://127.0.0.1:{agent_or_transfer}", TOKEN, tls=TlsSettings(ca=tls.ca)).get("/v1/status")

        before = {name: shown_by(port, tls) for name, port in ports.items()}
        for name in ports:
            authority.issue(name)
        for name, port in ports.items():
            wait_until(lambda name=name, port=port: shown_by(port, tls) != before[name], f"new certificate of {name}")
        version = scored.delta()  # all of them still reach each other
        cluster.wait_live(version)


def _start_serve(cluster: Cluster, tmp_path: Path) -> int:
    port = free_port()
    settings = {"shards": [[f"127.0.0.1:{cluster.instances[0].server_port}"]], "token_file": str(cluster.token_file)}
    conf = tmp_path / "cube.yaml"
    conf.write_text(yaml.safe_dump(settings | {"timeout_ms": 5000, "connect_ms": 2000}))
    arguments = ["serve", "--repo", str(cluster.repository), "--model", "ctr", "--cube", str(conf), "--port", str(port)]
    arguments += ["--grpc-port", "-1", "--index-dir", str(tmp_path / "index"), "--drain", "0"]
    process = cluster.run("serve", [*arguments, *cluster.tls_flags("serve")])

    def is_ready() -> bool:
        process.check_running()
        return cluster.ask(f"https://127.0.0.1:{port}", "/v1/models/ctr")["live"] == 1

    wait_until(is_ready, "serve", START_S)
    return port


def _check_predictions(scored: Scored, port: int, tls: TlsSettings) -> None:
    samples = scored.draw(np.random.default_rng(1), 3)
    url, ca, cert, key = f"https://127.0.0.1:{port}", str(tls.ca), str(tls.cert), str(tls.key)
    body: dict[str, Any] = {"samples": [sample.json() for sample in samples], "values": "feasigns"}
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(cert, key)
    answer = httpx.post(f"{url}/v1/models/ctr:predict", json=body, verify=context, timeout=60)
    assert answer.status_code == 200 and answer.json()["version"] == 1, answer.text
    with PredictClient(
        url, model="ctr", ca_file=ca, cert_file=cert, key_file=key, timeout_s=60, connect_s=30
    ) as client:
        assert client.predict(body["samples"], values="feasigns").version == 1
    stranger = PredictClient(url, model="ctr", ca_file=ca, retries=0, timeout_s=60, connect_s=30)
    with stranger as client, pytest.raises(ElasticCTRError):
        client.predict(body["samples"], values="feasigns")


def _check_command(cluster: Cluster, port: int, tls: TlsSettings) -> None:
    """`cube get` and `cube status` on the command line."""
    flags = ["--token-file", str(cluster.token_file), *flags_of(tls.model_copy(update={"client_ca": None}))]
    settings = CubeSettings(shards=((f"127.0.0.1:{port}",),), timeout_ms=30_000, connect_ms=20_000, tls=tls)
    with CubeClient(settings, TOKEN) as client:
        table = client.connect(30.0)[0]
    get = ["cube", "get", table, "1", "--endpoint", f"127.0.0.1:{port}", "--timeout", "30", "--json", *flags]
    assert json.loads(_run(get))["version"] == 1
    assert json.loads(_run(["cube", "status", "--endpoint", cluster.transfer_url, "--json", *flags]))["all_live"]


def _run(arguments: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "elasticctr", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _check_refusals(port: int, serve_port: int, tls: TlsSettings, stranger: Authority) -> None:
    def ask(own: TlsSettings | None) -> None:
        settings = CubeSettings(
            shards=((f"127.0.0.1:{port}",),), timeout_ms=30_000, connect_ms=20_000, retries=0, tls=own
        )
        with CubeClient(settings, TOKEN) as client:
            client.connect(30.0)

    strange = stranger.mutual("stranger")
    ask(tls)
    with pytest.raises(FailedPrecondition, match="this port speaks TLS"):
        ask(None)
    with pytest.raises(Unavailable, match="its certificate is not trusted"):
        ask(strange)
    with pytest.raises(Unavailable, match="does not trust our certificate"):
        ask(strange.model_copy(update={"ca": tls.ca}))
    with pytest.raises(Unavailable, match="requires a certificate"):
        ask(TlsSettings(ca=tls.ca))
    for http_port in (port, serve_port):
        answer = httpx.get(f"http://127.0.0.1:{http_port}/v1/status", timeout=30)
        assert answer.status_code == 400 and "https://" in answer.text
    with socket.create_connection(("127.0.0.1", port), timeout=30) as redis:
        redis.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert redis.recv(200).startswith(b"-ERR this port speaks TLS")
