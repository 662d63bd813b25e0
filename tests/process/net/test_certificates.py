"""A prediction server as a process reloads its certificates on a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
from tests.unit.net.test_certificates import pairs, replace, shown_by

__all__ = ["pairs"]


def test_sighup_reads_the_files_again(tmp_path: Path, pairs: list[tuple[Path, Path]]) -> None:
    (cert, key), (new_cert, new_key) = pairs
    command = [sys.executable, "-m", "elasticctr", "serve", "--repo", str(tmp_path / "repo"), "--model", "ctr"]
    command += ["--port", "0", "--grpc-port", "-1", "--index-dir", str(tmp_path / "index"), "--drain", "0", "--json"]
    command += ["--cert-file", str(cert), "--key-file", str(key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            port = json.loads(process.stdout.readline())["port"]
            assert shown_by(port) == cert.read_text().strip()
            assert httpx.get(f"https://127.0.0.1:{port}/healthz", verify=False, timeout=60).status_code == 200
            replace(cert, new_cert)
            replace(key, new_key)
            process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
            while shown_by(port) != new_cert.read_text().strip():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
