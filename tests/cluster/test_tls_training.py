"""A training run whose roles use only mutual TLS."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from elasticctr import _native
from elasticctr.config.tls import TlsSettings
from elasticctr.errors import FailedPrecondition, Unavailable
from elasticctr.net.client import Peer
from elasticctr.ps.addresses import find_coordinator
from elasticctr.ps.coordinator.pserver_client import ControlClient
from elasticctr.ps.identity import job_identity
from tests.cluster.certificate import Authority
from tests.cluster.harness import wait_until
from tests.cluster.test_tls_cube import shown_by
from tests.cluster.training import START_S, Log, Training

pytestmark = pytest.mark.skipif(not _native.tls_library(), reason="built without TLS (no OpenSSL headers)")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.promise(
    "gradients, rows and the job's secret read on the wire between trainers, pservers and coordinator",
    "with cluster.tls every role listens with TLS only and shows its certificate, a stranger's is refused, and a "
    "certificate replaced on disk is shown without a restart; training ends as it does without TLS",
)
def test_a_run_under_mutual_tls(training_log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = Authority(tmp_path / "tls"), Authority(tmp_path / "strange", "another authority")
    tls = authority.mutual("role")
    folder = tmp_path / ("no room for the path of a Unix socket here " * 3)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    with Training(
        tmp_path, training_log, seed=3, epochs=20, pservers=1, standby=True, tls=tls.model_dump(mode="json")
    ) as training:
        training.start()
        training.wait_samples(0.02)
        assert not list(folder.rglob("*.sock")), "trainers would not use the port"
        url = find_coordinator(str(training.run_dir))
        assert url.startswith("https://")
        (shard,) = _ask(training, url, tls, "/v1/pservers")["shards"]
        address = str(shard["address"])
        _check_refusals(training, url, address, tls, stranger)
        ports = {"pserver": int(address.rpartition(":")[2]), "coordinator": int(url.rpartition(":")[2])}
        before = {name: shown_by(port, tls) for name, port in ports.items()}
        authority.issue("role")
        for name, port in ports.items():
            wait_until(lambda name=name, port=port: shown_by(port, tls) != before[name], f"new certificate of {name}")
        standby_port = int(str(shard["standby"] or _standby(training, url, tls)).rpartition(":")[2])
        assert shown_by(standby_port, tls) != before["pserver"]
        training.kill("pserver-0")  # the standby was fed by TLS, and takes over
        training.finish()
        training.check()


def _standby(training: Training, url: str, tls: TlsSettings) -> str:
    return wait_until(
        lambda: str(_ask(training, url, tls, "/v1/pservers")["shards"][0]["standby"] or ""), "the standby", START_S
    )


def _ask(training: Training, url: str, tls: TlsSettings | None, path: str) -> dict[str, Any]:
    token = (training.run_dir / "cluster" / "token").read_text().strip()
    with Peer(url, token, timeout_s=30.0, tls=tls) as peer:
        return peer.get(path)


def _check_refusals(training: Training, url: str, address: str, tls: TlsSettings, stranger: Authority) -> None:
    with pytest.raises(Unavailable, match="authority that signed its certificate"):
        _ask(training, url, stranger.mutual("stranger"), "/v1/status")
    with pytest.raises(Unavailable):
        _ask(training, url, TlsSettings(ca=tls.ca), "/v1/status")
    with pytest.raises(Unavailable, match="https"):
        _ask(training, url.replace("https", "http"), None, "/v1/status")
    asked: dict[str, Any] = {"job": job_identity(training.job).number, "incarnation": 0, "attach": "{}"}
    with pytest.raises(FailedPrecondition, match="this port speaks TLS"):
        ControlClient(**asked).control(address, {"op": "stats"}, timeout_s=30)
    with pytest.raises(Unavailable, match="TLS failed"):
        ControlClient(**asked, tls=stranger.mutual("stranger")).control(address, {"op": "stats"}, timeout_s=30)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01")  # an unfinished handshake blocks nobody
        assert _ask(training, url, tls, "/v1/status")
