"""Garbage, false values and silence on every port while a job trains: refused, and the job is unaffected."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from elasticctr.ps.addresses import find_coordinator
from tests.cluster.training import Log, Training

pytestmark = pytest.mark.timeout(900)


def addresses(training: Training) -> list[tuple[str, int]]:
    """Of the coordinator and of every pserver."""
    url = urlsplit(find_coordinator(str(training.run_dir)))
    assert url.hostname is not None and url.port is not None
    found = [(url.hostname, url.port)]
    for role in training.status()["roles"]:
        if role.get("address"):
            host, _, port = str(role["address"]).rpartition(":")
            found.append((host, int(port)))
    return found


def garbage(training: Training) -> list[bytes]:
    draw = training.random
    header = struct.Struct("<4sBBHIIQQQ")
    lies = [
        header.pack(b"ECTR", 1, opcode, 0, length, draw.getrandbits(32), draw.getrandbits(64), 0, 0)
        for opcode in (0, 1, 16, 17, 18, 19, 20, 21, 22, 24, 25, 255)
        for length in (0, 7, 2**32 - 1)
    ]
    noise = [draw.randbytes(draw.randrange(1, 5000)) for _ in range(20)]
    http = [b"POST /v1/lease HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"GET /" + b"a" * 100_000]
    return [*lies, *noise, *http, b"", b"\0" * 40, b"\xff" * 100_000]


@pytest.mark.slow
def test_hostile_peers_harm_nothing(training_log: Log, tmp_path: Path) -> None:
    with Training(tmp_path, training_log, seed=14, epochs=6) as training:
        training.start()
        training.wait_samples(0.02)
        places = addresses(training)
        assert len(places) == 3, places
        silent = []
        for place in places:
            silent.append(socket.create_connection(place, timeout=60))  # says nothing until the end
            for data in garbage(training):
                with contextlib.suppress(OSError), socket.create_connection(place, timeout=5) as peer:
                    peer.sendall(data)
                    peer.settimeout(0.05)
                    peer.recv(1000)
        training.finish()
        training.check()
        assert training.rollbacks == 0
        assert all(training.restarts(role) == 0 for role in training.roles())
        for peer in silent:
            peer.close()
