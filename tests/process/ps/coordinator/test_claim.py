"""The claim of a dead coordinator is taken over at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from elasticctr.ps.coordinator.claim import Claim


def test_one_that_is_dead_is_taken_over_at_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    first = Claim(tmp_path)
    first.release()
    about = json.loads((tmp_path / "claim.json").read_text())
    about |= {"is_released": False, "pid": int(done.stdout)}
    (tmp_path / "claim.json").write_text(json.dumps(about))
    began = time.monotonic()
    second = Claim(tmp_path, silent_s=600)
    assert second.incarnation == 2 and time.monotonic() - began < 60
    second.release()
