"""Where the ranks of a collective run meet: the store through which torch makes their connections.

Torch's store and gloo have neither secrets nor encryption: anyone who can reach them can take part. So ranks on one
machine meet on its loopback addresses alone, ranks on several machines only if the job says that their network is
closed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elasticctr.errors import ConfigError, Unavailable
from elasticctr.net.access import is_loopback

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LOOPBACK = "lo"
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class Meeting:
    rank: int
    size: int
    host: str
    port: int
    is_local: bool  # all ranks are on this machine
    is_store_kept: bool  # by torchrun, which outlives the ranks
    is_store_torchruns: bool  # it listens, and no rank does

    def stay_local(self) -> None:
        """Ranks of one machine talk over loopback, not over the address of its name."""
        names = {name for _, name in socket.if_nameindex()}
        if self.is_local and _LOOPBACK in names:
            for variable in _INTERFACES:
                os.environ.setdefault(variable, _LOOPBACK)

    def secret_prefix(self, token: str) -> str:
        """Of all keys in the store: ranks with another secret, or none, meet no one."""
        return hmac.new(token.encode(), b"elasticctr collective", hashlib.sha256).hexdigest()


def find_meeting(environ: Mapping[str, str], *, insecure: bool) -> Meeting:
    """The environment's meeting. Refuses a meeting that other machines could join unless `insecure`."""
    missing = [name for name in _VARIABLES if not environ.get(name)]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: not set, so this process is not a rank of a group; start collective training with "
            "elasticctr train JOB --on torchrun, or with torchrun"
        )
    try:
        rank, size, port = (int(environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    except ValueError as e:
        raise ConfigError(f"RANK, WORLD_SIZE and MASTER_PORT are numbers: {e}") from None
    host = environ["MASTER_ADDR"]
    is_local = is_loopback(host) or environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    if not is_local and not insecure:
        raise ConfigError(
            f"collective: ranks meet at {host}:{port}, which other machines can reach, and torch asks no one there for "
            "a secret; on a network that only the ranks can reach set cluster.insecure: true, or train with a strategy "
            "that has pservers, which do ask"
        )
    is_kept = environ.get("GROUP_WORLD_SIZE") == "1"
    is_torchruns = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if is_local and not is_torchruns and not is_loopback(host):
        host = "127.0.0.1"
    return Meeting(rank, size, host, port, is_local, is_kept, is_torchruns)


def open_store(meeting: Meeting, timeout: timedelta) -> Any:
    """Rank 0 listens at the address where the ranks meet, and at no other; the rest connect."""
    if meeting.rank != 0 or meeting.is_store_torchruns:
        return dist.TCPStore(meeting.host, meeting.port, meeting.size, False, timeout)  # type: ignore[attr-defined]
    listening = _listen(meeting.host, meeting.port)
    return dist.TCPStore(  # type: ignore[attr-defined]
        meeting.host, meeting.port, meeting.size, True, timeout, master_listen_fd=listening.detach()
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as e:
        raise Unavailable(
            f"rank 0 cannot listen at {host}:{port}, where the ranks are to meet: {e.strerror or e}"
        ) from e
    return listening
