"""A download onto a full disk ends in an error of the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.fakes import FileHost
from tests.unit.cube.agent.test_fetch import DATA


def test_a_full_disk_is_an_error_of_the_tree(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/t.cube").write_bytes(DATA)
    host = FileHost(tmp_path / "host")
    request.addfinalizer(host.stop)
    # A limit on file sizes stands for the full disk: the same refusal in the middle of a write.
    code = f"""
import resource, signal, sys
from pathlib import Path
from elasticctr.errors import InternalError
from tests.unit.cube.agent.test_fetch import Fetcher, HttpSource, RateLimit, Watch, listed, make_client, TOKEN
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    source = HttpSource({host.url!r}, make_client(TOKEN, timeout_s=60))
    Fetcher(RateLimit(None)).fetch_file(source, listed(), Path({str(tmp_path)!r}), Watch(60))
except InternalError as e:
    sys.exit(0 if "disk is full" in str(e) else 3)
sys.exit(4)
"""
    root = Path(__file__).resolve().parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
