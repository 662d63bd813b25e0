"""Where roles are found: the address a role advertises, the Unix socket beside a pserver's port, and
`coordinator.json`, by which roles find the coordinator.

The coordinator writes the file into the run directory once it listens. A role that was given a run directory instead
of a URL reads it, and reads it again when the coordinator stops answering: one that was placed on another machine has
another address.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

from elasticctr.errors import Corruption, Unavailable
from elasticctr.storage.atomic import write_json

FILE = "coordinator.json"
_EVERYWHERE = ("", "0.0.0.0", "::")
_HERE = ("127.0.0.1", "localhost", "[::1]")
_LONGEST_SOCKET = 100  # bytes of a path; the system takes 107


def advertised_host(host: str) -> str:
    """The host others reach this process at when it listens at `host`."""
    if host not in _EVERYWHERE:
        return host
    for name in ("ELASTICCTR_ADVERTISE", "POD_IP", "PADDLE_CURRENT_IP"):
        if os.environ.get(name):
            return os.environ[name]
    # Sends no packet: this finds the address that would be used to leave the machine.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_local_socket(port: int, job: int) -> Path | None:
    """A path for the Unix socket of a pserver that listens at `port`; None if this user cannot have one."""
    path = _local_socket(port, job)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        is_own = path.parent.stat().st_uid == os.getuid()
    except OSError:
        return None
    return path if is_own and len(os.fsencode(path)) <= _LONGEST_SOCKET else None


def find_nearest(address: str, job: int) -> str:
    """The way to a pserver: its Unix socket if it is on this machine, which takes less CPU than its port."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or (host not in _HERE and host != advertised_host("")):
        return address
    path = _local_socket(int(port), job)
    return f"unix:{path}" if path.is_socket() and path.parent.stat().st_uid == os.getuid() else address


def _local_socket(port: int, job: int) -> Path:
    return Path(tempfile.gettempdir()) / f"elasticctr-{os.getuid()}" / f"{port}-{job:016x}.sock"


def write_coordinator(run_dir: str | Path, url: str, incarnation: int) -> None:
    """Says where the coordinator listens. A later incarnation replaces it."""
    about = {"url": url, "incarnation": incarnation, "host": socket.gethostname(), "pid": os.getpid()}
    write_json(Path(run_dir) / FILE, about, writer=str(os.getpid()))


def find_coordinator(where: str | Path) -> str:
    """The coordinator's URL: `where` itself, or the one in the run directory `where`. Unavailable until it is there."""
    text = str(where)
    if text.startswith(("http://", "https://")):
        return text.rstrip("/")
    path = Path(text) / FILE
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        url = about["url"]
    except FileNotFoundError:
        raise Unavailable(f"{path}: the coordinator has not started yet", retry_after_s=0.2) from None
    except (OSError, UnicodeDecodeError) as e:
        raise Unavailable(f"{path}: cannot be read: {e}", retry_after_s=1.0) from None
    except (ValueError, KeyError, TypeError):
        raise Corruption(f"{path}: does not say where the coordinator is; remove it and start the job again") from None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise Corruption(f"{path}: {url!r} is not the address of a coordinator; remove it and start the job again")
    return url.rstrip("/")
