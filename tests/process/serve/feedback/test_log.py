"""A full disk costs the request log lines and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from elasticctr.serve.feedback.log import list_logs, parse_line, read_lines

FULL = """
import resource, signal, sys
from tests.unit.serve.feedback.writing import HOUR
from elasticctr import _native
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
log = _native.RequestLog(sys.argv[1])
for i in range(400):
    log.add(HOUR, f"r{i}", "ctr", 1, "live", "json", b"{}", ["s"], [], [[], [(0, [i])]], [], [[0.5]])
log.stop()
print(log.written, log.failed, log.dropped)
"""


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    written, failed, dropped = map(int, done.stdout.split())
    assert written + failed == 400
    assert failed > 0
    assert dropped == 0
    found = [parse_line(line, path) for path in list_logs([tmp_path]) for _, line in read_lines(path)]
    assert len(found) == written
