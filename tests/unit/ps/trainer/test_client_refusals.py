"""Wrong jobs, wrong tokens and garbled answers end in typed errors."""

from __future__ import annotations

import random
import socket
import threading

import pytest
from tests.unit.ps.pservers import LocalPservers
from tests.unit.ps.trainer.remote_steps import TABLES, Model, head, push

from elasticctr.errors import ElasticCTRError, FailedPrecondition, Unauthorized, Unavailable


def test_strangers_are_refused(pservers: LocalPservers) -> None:
    with pytest.raises(FailedPrecondition, match=r"pserver \d \(127\.0\.0\.1:\d+\): "):
        pservers.client(job=78)
    with pytest.raises(FailedPrecondition, match="ask the coordinator for the list of pservers"):
        pservers.client(addresses=pservers.addresses[::-1])
    with pytest.raises(Unavailable, match="could not be asked in time: no connection"):
        pservers.client(addresses=[pservers.addresses[0], f"127.0.0.1:{_closed_port()}"], timeout_s=0.3)


def test_a_wrong_token_is_refused() -> None:
    cluster = LocalPservers(TABLES, shards=1, token="secret")
    try:
        cluster.client()
        with pytest.raises(Unauthorized, match=r"pserver 0 \(127\.0\.0\.1"):
            cluster.client(token="guess")
    finally:
        cluster.close()


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class _Hostile(threading.Thread):
    """Between a client and its pserver; changes what the pserver says."""

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._random = random.Random(seed)
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            far = socket.create_connection(self._target)
            for pair in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()
        self._listener.close()

    def _copy(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while data := bytearray(source.recv(65536)):
                if is_answer and self._random.random() < 0.3:
                    for _ in range(3):
                        data[self._random.randrange(min(len(data), 100))] = self._random.randrange(256)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()


def test_hostile_answers_end_in_errors(pservers: LocalPservers, model: Model) -> None:
    proxies = [_Hostile(address, seed) for seed, address in enumerate(pservers.addresses)]
    for proxy in proxies:
        proxy.start()
    batch = model.batch(0)
    failures = 0
    for _ in range(6):
        try:
            client = pservers.client(addresses=[proxy.address for proxy in proxies], timeout_s=0.2)
            for step in range(4):
                fetch = client.start_pull(batch.lookups, insert=True, wants_dense=True)
                push(client, model, batch, head(step, chunk=3))
                fetch.rows(0)
                client.wait_pushes(timeout_s=0.2)
        except ElasticCTRError:
            failures += 1
    assert failures > 0
    for proxy in proxies:
        proxy.is_over = True
    pservers.client().wait_pushes()
