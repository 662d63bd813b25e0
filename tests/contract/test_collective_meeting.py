"""Where the ranks of a collective run meet, and what they exchange: on loopback, without pickles."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness import free_port

from elasticctr.collective.meeting import find_meeting
from elasticctr.errors import ConfigError

RANK = """
import os, pickle, sys
def refuse(*_, **__): raise AssertionError("a peer's bytes were unpickled")
import torch.distributed as dist
from elasticctr.errors import NotFound
from elasticctr.collective.group import Group
pickle.loads = pickle.load = pickle.Unpickler = refuse
with Group(120.0, token=sys.argv[1]) as group:
    print("met", flush=True)
    sys.stdin.readline()
    assert group.gather({"rank": group.rank, "text": "é" * group.rank}) == [
        {"rank": 0, "text": ""}, {"rank": 1, "text": "é"}]
    assert group.gather_bytes(b"\\0" * group.rank) == [b"", b"\\0"]
    assert group.broadcast(["write", "x" * 5000] if group.is_first else None) == ["write", "x" * 5000]
    assert group.first(lambda: {"a": [1, None]}) == {"a": [1, None]}
    def fail():
        raise NotFound("gone")
    try:
        group.first(fail)
    except NotFound as e:
        assert str(e) == "gone"
    else:
        raise AssertionError("no error")
"""


def start_rank(rank: int, port: int, token: str = "a-secret-of-16-characters") -> subprocess.Popen[str]:
    names = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    pipe: Any = subprocess.PIPE
    command = [sys.executable, "-c", RANK, token]
    return subprocess.Popen(command, env=os.environ | names, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def listening(pid: int) -> list[str]:
    """Addresses that a process accepts connections at."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].split(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                found.append(socket.inet_ntop(socket.AF_INET if name == "tcp" else socket.AF_INET6, words))
    return found


@pytest.mark.promise(
    "somebody on the network looks for the ports of a collective run, or sends its ranks a pickle",
    "ranks of one machine, and their store, listen only on loopback and unpickle nothing",
)
def test_ranks_of_one_machine_listen_on_loopback_and_unpickle_nothing() -> None:
    port = free_port()
    ranks = [start_rank(rank, port) for rank in range(2)]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            line = rank.stdout.readline()
            assert line == "met\n", rank.stderr.read() if rank.stderr is not None else ""
        addresses = [address for rank in ranks for address in listening(rank.pid)]
        assert addresses and set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, addresses
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()
        for rank in ranks:
            _, errors = rank.communicate(timeout=120)
            assert rank.returncode == 0, errors[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_a_meeting_that_other_machines_could_join_is_refused() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"}
    with pytest.raises(ConfigError, match=r"10\.1\.2\.3:29500.*cluster\.insecure: true"):
        find_meeting(environ, insecure=False)
    assert find_meeting(environ, insecure=True).host == "10.1.2.3"
    one_machine = find_meeting(environ | {"LOCAL_WORLD_SIZE": "2"}, insecure=False)
    assert one_machine.is_local and one_machine.host == "127.0.0.1"
    theirs = find_meeting(environ | {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}, insecure=False)
    assert theirs.is_local and theirs.host == "10.1.2.3" and theirs.is_store_torchruns
    with pytest.raises(ConfigError, match="are numbers"):
        find_meeting(environ | {"RANK": "first"}, insecure=True)
