"""The latency probe of predict_swap.py: one request at a time at a constant rate, from a separate process.

usage: python benchmarks/predict_probe.py PORT BODY.json RATE SECONDS      (SIGINT ends it sooner)

A request is timed from the moment it was due, so waiting for the previous one counts.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


class Probe:
    """A running probe; `wait` or `stop` return its results."""

    def __init__(self, port: int, body: Path, rate: float, seconds: float) -> None:
        command = [sys.executable, __file__, str(port), str(body), str(rate), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> dict[str, Any]:
        out, _ = self._process.communicate(timeout=300)
        found: dict[str, Any] = json.loads(out)
        return found

    def stop(self) -> dict[str, Any]:
        self._process.send_signal(signal.SIGINT)
        return self.wait()


def measure(port: int, body: bytes, rate: float, seconds: float) -> dict[str, float]:
    head = f"POST /v1/models/ctr:predict HTTP/1.1\r\nHost: probe\r\nContent-Length: {len(body)}\r\n\r\n"
    request, latencies, failed = head.encode() + body, [], 0
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    started = time.perf_counter()
    try:
        for number in range(int(rate * seconds)):
            due = started + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.sendall(request)
            status = _read(connection)
            latencies.append(time.perf_counter() - due)
            failed += status != 200
    except KeyboardInterrupt:
        pass
    found = np.percentile(latencies, [50, 99, 99.9, 100]) * 1000
    return {
        "requests": len(latencies),
        "failed": failed,
        **dict(zip(("p50_ms", "p99_ms", "p999_ms", "max_ms"), found.tolist(), strict=True)),
    }


def _read(connection: socket.socket) -> int:
    """Reads one answer and returns its status."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    while len(body) < length:
        body += _receive(connection)
    return int(head.split(b" ", 2)[1])


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise SystemExit("the server closed the probe's connection")
    return data


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), float(sys.argv[3]), float(sys.argv[4]))))
