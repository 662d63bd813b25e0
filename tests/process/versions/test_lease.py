"""The lock of a dead publisher is broken; one that only looks dead holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticctr.errors import Unavailable
from elasticctr.storage import open_store
from elasticctr.versions.lease import LOCK, PublisherLease


def test_a_dead_publishers_lock_is_broken(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    code = "import os, sys; from elasticctr.storage import open_store; "
    code += "from elasticctr.versions.lease import PublisherLease; "
    code += f"PublisherLease(open_store({str(tmp_path)!r}), 'ctr').__enter__(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert store.exists(f"ctr/{LOCK}")
    with PublisherLease(store, "ctr") as lease:
        lease.renew()


@pytest.mark.parametrize("changed", [{"pid_namespace": 1}, {"boot": "another"}, {"started": None}, {"boot": None}])
@pytest.mark.promise(
    "two containers with the same host name publish at once",
    "a process number of another PID namespace or boot proves nothing: the lock holds until its time",
)
def test_a_lock_of_another_pid_namespace_holds_until_its_time(tmp_path: Path, changed: dict[str, object]) -> None:
    store = open_store(str(tmp_path))
    PublisherLease(store, "ctr").__enter__()
    held = json.loads(store.read_bytes(f"ctr/{LOCK}"))
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    store.write_bytes(f"ctr/{LOCK}", json.dumps(held | {"pid": int(dead.stdout)} | changed).encode())
    with pytest.raises(Unavailable, match="is publishing"), PublisherLease(store, "ctr"):
        pass
