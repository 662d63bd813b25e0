"""A table whose file cannot be written keeps the old one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.table.test_snapshot import fill, make_table

FULL_DISK = """
import resource, signal, sys
from tests.unit.table.test_snapshot import fill, make_table
from elasticctr.errors import InternalError
table = make_table()
fill(table)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    table.save({path!r})
except InternalError as e:
    print(e)
"""


def test_a_write_that_fails_keeps_the_old_file_and_no_half_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = make_table()
    fill(table)
    table.save(path)
    before = path.read_bytes()
    root = Path(__file__).parents[3]
    script = FULL_DISK.format(path=str(path))
    result = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert "cannot be written" in result.stdout and str(path) in result.stdout
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["table"]
